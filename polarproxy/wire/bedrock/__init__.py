"""AWS Bedrock Converse and ConverseStream, and the binary framing and signatures that AWS puts around them."""
