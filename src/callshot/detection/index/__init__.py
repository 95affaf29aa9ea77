"""Windows of recordings, embedded once and kept in files."""
