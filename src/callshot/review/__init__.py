"""Review by ear and eye: detections or segments → what people said of them.

sources         a scan, a table of segments or a study → items
scan_folder     the facts and events of a scan
items           the items and their arrays, and scores of all labels → what the page shows
journal         every decision, in a file that only grows
journal_lines   a line of that file, with its checksum
decisions       the journal → what is in effect: decisions, undo, splits, conflicts
orders          items → the order in which they are shown, and filters
model_scores    vectors of detections, and their scores by a model that moves with every decision
held_out_scores scores of labelled segments by those of other recordings
estimates       precision, intervals, agreement
shot_curve      the k-shot curve of the labels collected so far
sound           spans of recordings → WAV, waveforms
spectrogram     signals → pictures
examples        labelled calls to compare an item with
requests        what a page sends, every value checked → rows of the journal
session, session_facts
                all of it together: what the page asks, and what it gets
score_worker    the thread that computes scores
results         a journal → calls for other programs
learn_review    a journal → examples of a model
verify_review   the state of each file of a review
web, web_sound  the routes of the page, as a Starlette application
web_safety      token, Host, Origin, content-security policy, Range
address_file    port and token of the last time
server          the port, the browser, the end
"""
