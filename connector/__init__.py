"""The service: reads DynamoDB and its stream, feeds the accelerator, reports."""
