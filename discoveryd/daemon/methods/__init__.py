"""The interface's methods: calls in, questions to registry and answers, replies out."""
