"""Results of corpora → tables as the paper has them → LaTeX, Markdown and CSV."""
