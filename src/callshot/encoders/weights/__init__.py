"""Weight files: find, download, import and verify them."""
