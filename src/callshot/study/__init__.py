"""The study: a file that names corpora, encoders and a protocol → all tables, figures and pages, by one command.

study = read_study(path)         the file, every key checked
steps = plan(study)              segment → fold → embed → evaluate → report, each with what decides its outcome
run_study(study)                 what is missing or has changed, and nothing else
"""
