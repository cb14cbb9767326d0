"""What a trained model is worth: perplexity per domain, and text it writes."""
