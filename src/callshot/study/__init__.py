"""A study file that names corpora, encoders and a protocol → tables, figures and a report.

study = read_study(path)     the file, every key checked
steps = plan(study)          segment → embed → fold → evaluate → baselines → report
run_study(study)             runs what is missing or has changed, and nothing else
"""
