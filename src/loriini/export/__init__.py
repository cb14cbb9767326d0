"""Export of trained models: Hugging Face folders, architectures that other programs serve, GGUF files."""
