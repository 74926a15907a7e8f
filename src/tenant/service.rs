//! Making a tenant and finding it.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::store;
use crate::fault::{Error, Fault};
use crate::ids::{InvalidName, TenantId, is_plain_text};
use crate::ledger;
use crate::money::CurrencyCode;

/// The language a tenant is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locale {
    /// Uzbek.
    Uz,
    /// Russian.
    Ru,
    /// English.
    En,
}

impl Locale {
    /// Parses a code.
    ///
    /// # Errors
    /// [`InvalidName`] for anything but `uz`, `ru`, `en`.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        match text {
            "uz" => Ok(Self::Uz),
            "ru" => Ok(Self::Ru),
            "en" => Ok(Self::En),
            _ => Err(InvalidName { what: "locale", rule: "must be uz, ru or en" }),
        }
    }

    /// The code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uz => "uz",
            Self::Ru => "ru",
            Self::En => "en",
        }
    }
}

/// A time zone of the IANA database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeZone(chrono_tz::Tz);

impl TimeZone {
    /// Uzbekistan's own.
    pub const TASHKENT: Self = Self(chrono_tz::Asia::Tashkent);

    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidName`] when there is no such zone.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        text.parse()
            .map(Self)
            .map_err(|_| InvalidName { what: "time_zone", rule: "must be an IANA name such as Asia/Tashkent" })
    }

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0.name()
    }

    /// The zone itself.
    #[must_use]
    pub const fn zone(self) -> chrono_tz::Tz {
        self.0
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The product's own id.
    pub tenant_id: TenantId,
    /// For people to read.
    pub name: String,
    /// "The first of the month" is the first in this zone.
    pub time_zone: TimeZone,
    /// The language it is spoken to in.
    pub locale: Locale,
    /// `active`, `suspended` or `closed`.
    pub status: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// Why a tenant can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenantRefusal {
    /// The id stands for another tenant.
    #[error("tenant {tenant_id} exists with another {}", fields.join(", "))]
    Differs {
        /// Which tenant.
        tenant_id: TenantId,
        /// Which fields.
        fields: Vec<&'static str>,
    },
}

/// Whether a name can be stored and shown.
///
/// # Errors
/// [`InvalidName`].
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    if !name.trim().is_empty() && name.chars().count() <= 200 && is_plain_text(name) {
        Ok(())
    } else {
        Err(InvalidName { what: "name", rule: "must be 1 to 200 characters without control characters" })
    }
}

/// Makes a tenant with its so'm wallet, or finds the same one made. The second value says whether it is new.
///
/// # Errors
/// [`TenantRefusal`].
pub async fn create(conn: &mut PgConnection, tenant: &Tenant) -> Result<(Tenant, bool), Error<TenantRefusal>> {
    if store::insert(conn, tenant).await? {
        ledger::open_wallet(conn, &tenant.tenant_id, &CurrencyCode::uzs(), tenant.created_at).await?;
        return Ok((tenant.clone(), true));
    }
    let there = store::find(conn, &tenant.tenant_id)
        .await?
        .ok_or_else(|| Fault::new("a tenant that conflicted with an insert was not there to read"))?;
    let fields: Vec<&'static str> = [
        ("name", there.name == tenant.name),
        ("time_zone", there.time_zone == tenant.time_zone),
        ("locale", there.locale == tenant.locale),
    ]
    .into_iter()
    .filter_map(|(field, same)| (!same).then_some(field))
    .collect();
    if fields.is_empty() {
        Ok((there, false))
    } else {
        Err(Error::Refused(TenantRefusal::Differs { tenant_id: tenant.tenant_id.clone(), fields }))
    }
}

/// A tenant. Reads only.
///
/// # Errors
/// A fault.
pub async fn find(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Option<Tenant>, Fault> {
    store::find(conn, tenant_id).await
}

/// What changes about a tenant; none stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// For people to read; checked by [`check_name`].
    pub name: Option<String>,
    /// The zone.
    pub time_zone: Option<TimeZone>,
    /// The language.
    pub locale: Option<Locale>,
}

/// Changes a tenant; `None` when there is none.
///
/// # Errors
/// A fault.
pub async fn change(conn: &mut PgConnection, tenant_id: &TenantId, change: &Change) -> Result<Option<Tenant>, Fault> {
    store::update(conn, tenant_id, change).await?;
    store::find(conn, tenant_id).await
}
