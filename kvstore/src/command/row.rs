//! A row of the table of commands, and the macro that makes the code of all rows.

/// What the table says about a kind of command.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Row {
    /// The name of the variant.
    pub name: &'static str,
    /// The state-machine version that introduced it.
    pub version: u8,
    /// Whether it reads or writes.
    pub access: Access,
    /// Where it can stand.
    pub place: Placement,
}

/// Whether a command reads or writes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Access {
    /// It changes nothing.
    Read,
    /// It changes state, and may also return what was there.
    Write,
    /// It reads or writes as its operations do.
    OfOperations,
}

/// Where a command can stand.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Placement {
    /// Alone, or among the operations of an EXEC.
    Anywhere,
    /// Alone only.
    Alone,
}

/// Makes the code of a table: the enum of commands, [`Kind`], and each function that differs from
/// row to row. A row is
///
/// ```text
/// /// What the command does.
/// kind 8, version 2, Write, Anywhere, keys [key]:
/// Append {
///     /// What the field is.
///     key: &'a [u8],
///     ...
/// },
/// ```
///
/// The encoding has the fields in the order of the row, each as the trait `Field` of its type says.
/// `keys` names the fields that hold keys, each a type with the trait `Keys`.
macro_rules! commands {
    (
        $(#[$about:meta])*
        pub enum $commands:ident<$life:lifetime> {
            $(
                $(#[$what:meta])*
                kind $kind:literal, version $version:literal, $access:ident, $place:ident,
                keys [$($key:ident),*]:
                $name:ident $({
                    $( $(#[$field_about:meta])* $field:ident: $type:ty, )*
                })?,
            )*
        }
    ) => {
        $(#[$about])*
        pub enum $commands<$life> {
            $( $(#[$what])* $name $({ $( $(#[$field_about])* $field: $type, )* })?, )*
        }

        /// The kinds of commands. Their numbers are the kind bytes of the encoding.
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $( $(#[$what])* $name = $kind, )*
        }

        impl Kind {
            /// All kinds, in the order of the table.
            pub const ALL: &[Self] = &[$( Self::$name ),*];

            /// The kind with this byte.
            #[must_use]
            pub const fn of_byte(byte: u8) -> Option<Self> {
                match byte {
                    $( $kind => Some(Self::$name), )*
                    _ => None,
                }
            }

            /// What the table says about it.
            #[must_use]
            pub const fn row(self) -> &'static Row {
                match self {
                    $( Self::$name => &Row {
                        name: stringify!($name),
                        version: $version,
                        access: Access::$access,
                        place: Placement::$place,
                    }, )*
                }
            }
        }

        impl<$life> $commands<$life> {
            /// The kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self {
                    $( Self::$name { .. } => Kind::$name, )*
                }
            }

            /// What the table says about the kind.
            #[inline]
            pub(super) const fn row(&self) -> &'static Row {
                match self {
                    $( Self::$name { .. } => const { Kind::$name.row() }, )*
                }
            }

            /// The one key of the command; none for lists and administrative commands.
            #[must_use]
            pub fn key(&self) -> Option<&$life [u8]> {
                match self {
                    $( Self::$name { $($key,)* .. } => None$( .or(Keys::one($key)) )*, )*
                }
            }

            /// Calls `visit` for every key in the fields that hold keys, until it fails.
            pub(super) fn visit_keys<E>(
                &self,
                visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
            ) -> Result<(), E> {
                match self {
                    $( Self::$name { $($key,)* .. } => {
                        $( Keys::each($key, Access::$access, visit)?; )*
                    } )*
                }
                Ok(())
            }

            /// Writes the fields.
            pub(super) fn write_fields(&self, sink: &mut impl Sink) {
                match self {
                    $( Self::$name $({ $($field),* })? => {
                        $( $( Field::write_field($field, sink); )* )?
                    } )*
                }
            }

            /// Reads the fields of a command of this kind.
            pub(super) fn read_fields(
                kind: Kind,
                reader: &mut Reader<$life>,
            ) -> Result<Self, DecodeError> {
                Ok(match kind {
                    $( Kind::$name => Self::$name $({
                        $( $field: Field::read_field(reader)?, )*
                    })?, )*
                })
            }
        }
    };
}

pub(super) use commands;
