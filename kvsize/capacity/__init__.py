"""Whether it fits: budgets of GPUs, what they hold, layouts, traffic, and ways out.

The figures of the cache itself are the engines'; nothing here computes them a second time.
"""
