# For people and pipelines that change desired state: set, clear, drain, ready, ramp, canary,
# heartbeat. Writes state and log, finds the agents to prove what was written.
#   consul acl policy create -name haplane-writer -rules @writer.hcl
key_prefix "haplane/" {
  policy = "write"
}
service "haplane-agent" {
  policy = "read"
}
node_prefix "" {
  policy = "read"
}
