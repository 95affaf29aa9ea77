"""Tables of events, and the files and pictures made from them."""
