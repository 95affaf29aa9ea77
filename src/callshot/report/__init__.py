"""SCORES → WHAT PEOPLE READ: result files, the terminal, figures, provenance, progress."""
