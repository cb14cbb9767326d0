"""Similar documents: embeddings, nearest neighbours, and orders that walk from one to the next."""
