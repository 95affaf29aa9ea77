"""A sweep on a GPU, written in Triton, with the numbers of the CPU, behind `sweep.sweep_fold`.

Tables are (shots, classes, lanes); lane q · draws + r is draw r of query q. One launch covers all
classes and shots. Draws that all queries share have one lane each.

Additions and multiplications are not fused, and sums run in the order of the CPU: equal products
give equal scores to the bit. All but `device` need torch and Triton.
"""
