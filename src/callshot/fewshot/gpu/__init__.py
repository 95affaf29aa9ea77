"""The inner loops of a sweep on a GPU, written in Triton, with the numbers of those for the CPU.

draws      keys → supports and bootstrap picks: the same bits as on the CPU
products   vectors → products with the queries, and products or distances inside each class
supports   supports and products → a_n of every draw and shot
scores     a_n → log-odds, odds or softmax, and the hard decisions
ties       scores → how many of the positives' are also another query's
bootstrap  scores → AP, AUROC and hits of every sample
weighted   scores and weights → weighted AP and AUROC of every sample

Tables are (shots, classes, lanes); lane q · draws + r is draw r of query q. One launch covers all
classes and shots. Draws that all queries share have one lane each.

Additions and multiplications are not fused, and sums run in the order of the CPU: equal products
give equal scores to the bit. These modules need torch and Triton, which users with a GPU have;
nothing imports them before `device` found both.
"""
