"""Programs that run under `.ci/setup-trainers`: each lets a trainer's own code read a file of ours, and prints what it saw.

They import nothing of the tests' own: that Python has the trainers and what polarproxy's formats need, no test tools.
"""
