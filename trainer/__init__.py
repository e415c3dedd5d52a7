"""The trainer that runs inside the image: the public Horovod MNIST example's recipe, fed from memory."""
