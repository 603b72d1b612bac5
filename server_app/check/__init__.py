"""`florets check`: what is wrong or odd with sites' data, before anything is trained."""
