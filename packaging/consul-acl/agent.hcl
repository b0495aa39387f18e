# For the token of every agent: reads desired state, announces itself.
#   consul acl policy create -name haplane-agent -rules @agent.hcl
# A token without the first line reads 404, as if nothing were desired; the agent's guard
# tells the two apart by the marker.
key_prefix "haplane/state/" {
  policy = "read"
}
service "haplane-agent" {
  policy = "write"
}
