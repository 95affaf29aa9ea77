"""A sweep on a GPU, written in Triton, with the numbers of the CPU, behind `sweep.sweep_fold`.

device     which processor evaluates, and why not the GPU
sweep      a fold → its metrics
draws      the rows of episodes on the GPU; keys → supports, the same bits as on the CPU
supports   products and supports → a_n of every draw and shot → scores and hard decisions
metrics    scores → AP, AUROC, hits, ties and decisions of every sample

Tables are (shots, classes, lanes); lane q · draws + r is draw r of query q. One launch covers all
classes and shots. Draws that all queries share have one lane each.

Additions and multiplications are not fused, and sums run in the order of the CPU: equal products
give equal scores to the bit. All but `device` need torch and Triton, which users with a GPU have;
nothing imports them before `device` found both.
"""
