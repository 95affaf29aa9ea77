"""FILES → SEGMENTS: audio and annotations come in, in the formats people have; segments and rejects go out."""
