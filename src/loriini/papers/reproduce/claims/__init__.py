"""A finding as claims over quantities by seed, the verdict on it, and reasons why it may not hold.

`measured` gives the quantities of an item's runs, `quantities` combines them, `claim` judges them, `reasons`
judges them again on other trainings, and `wording` puts claims and verdicts in words.
"""
