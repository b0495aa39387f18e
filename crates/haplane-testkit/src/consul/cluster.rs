//! Three servers, and a client agent as it runs beside each HAProxy.

use std::net::SocketAddr;

use super::{Access, Consul, Options, PATIENCE, Ports, Role};
use crate::eventually::eventually;
use crate::http::Request;

/// Three Consul servers and one client agent that has joined them.
#[derive(Debug)]
pub struct Cluster {
    /// The servers.
    pub servers: Vec<Consul>,
    /// The local agent that a program talks to.
    pub client: Consul,
}

impl Cluster {
    /// Starts a cluster that is open to everybody.
    pub async fn start() -> Self {
        Self::with(Access::Open).await
    }

    /// Starts a cluster with ACL, default policy deny.
    pub async fn start_with_acl() -> Self {
        Self::with(Access::Denied).await
    }

    async fn with(access: Access) -> Self {
        let options = |role| Options {
            access,
            role,
            ..Options::default()
        };
        let mut servers: Vec<_> = (0..3)
            .map(|_| Consul::prepare(options(Role::OnlyServer)))
            .collect();
        let members: Vec<SocketAddr> = servers
            .iter()
            .map(|server| server.ports.serf.address())
            .collect();
        let mut client = Consul::prepare(options(Role::Client {
            members: members.clone(),
        }));
        for server in &mut servers {
            server.options.role = Role::ServerOf {
                members: members.clone(),
            };
            server.launch();
        }
        client.launch();
        for server in &mut servers {
            server.ready().await;
        }
        client.ready().await;
        Self { servers, client }
    }

    /// The position in [`Self::servers`] of the leader, as the client agent knows it;
    /// waits until there is one.
    pub async fn leader(&self) -> usize {
        eventually("a leader", PATIENCE, async || {
            let answer = self
                .client
                .request(Request::get("/v1/status/leader"))
                .await
                .map_err(|e| e.to_string())?;
            let leader = answer.json().as_str().unwrap_or_default().to_owned();
            let is_it = |Ports { rpc, .. }: &Ports| rpc.address().to_string() == leader;
            self.servers
                .iter()
                .position(|server| is_it(&server.ports))
                .ok_or(leader)
        })
        .await
    }
}
