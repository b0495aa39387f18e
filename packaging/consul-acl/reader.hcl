# For people and programs that only look: show, status, why, wait, log, ui.
#   consul acl policy create -name haplane-reader -rules @reader.hcl
key_prefix "haplane/" {
  policy = "read"
}
service "haplane-agent" {
  policy = "read"
}
node_prefix "" {
  policy = "read"
}
