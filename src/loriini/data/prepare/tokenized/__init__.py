"""Documents as token ids, and the instances that are cut from them in order."""
