//! The kinds of sections that a configuration has.

macro_rules! sections {
    ($($keyword:literal => $variant:ident),* $(,)?) => {
        /// The kinds of sections, by their keywords (HAProxy 2.2 to 3.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is named as its keyword")]
        pub enum SectionKind {
            $($variant,)*
        }

        impl SectionKind {
            /// The kind that a keyword at the start of a line begins.
            pub(crate) fn from_keyword(keyword: &str) -> Option<Self> {
                match keyword {
                    $($keyword => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The keyword.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword,)*
                }
            }
        }
    };
}

sections! {
    "global" => Global,
    "defaults" => Defaults,
    "listen" => Listen,
    "frontend" => Frontend,
    "backend" => Backend,
    "peers" => Peers,
    "resolvers" => Resolvers,
    "mailers" => Mailers,
    "userlist" => Userlist,
    "program" => Program,
    "ring" => Ring,
    "cache" => Cache,
    "http-errors" => HttpErrors,
    "fcgi-app" => FcgiApp,
    "log-forward" => LogForward,
    "log-profile" => LogProfile,
    "namespace_list" => NamespaceList,
    "crt-store" => CrtStore,
    "traces" => Traces,
    "acme" => Acme,
}
