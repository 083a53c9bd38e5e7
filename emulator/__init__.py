"""The embedded AWS: DynamoDB, Streams and S3 on moto, with faithful streams."""
