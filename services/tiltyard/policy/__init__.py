"""What trainer, engine and gateway share about the policy: model files, chat rendering, forward pass and sampling.

`models`, `chat`, `config` and `token_bytes` load no torch, so that the gateway can use them; `llama`, `kv`,
`reference`, `sampling` and `tiny` do.
"""
