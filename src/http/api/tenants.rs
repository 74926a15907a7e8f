//! Tenants.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::fee::{self, UnpaidDue};
use crate::http::error::Problem;
use crate::http::extract::{Caller, Json, Named, NoParameters, Query, TenantsRead, TenantsWrite};
use crate::ids::TenantId;
use crate::tenant::{self, Locale, Tenant, TimeZone, check_name};

/// A tenant to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// The product's own id: 1 to 64 of A-Z a-z 0-9 . _ : @ + -
    #[schema(example = "acme")]
    pub tenant_id: String,
    /// For people to read.
    #[schema(example = "Acme LLC")]
    pub name: String,
    /// IANA name; the service's own zone (`HAMYON_TIME_ZONE`, Asia/Tashkent) when left out.
    #[schema(example = "Asia/Tashkent")]
    pub time_zone: Option<String>,
    /// uz, ru or en; uz when left out.
    #[schema(example = "uz")]
    pub locale: Option<String>,
}

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct TenantBody {
    /// The product's own id.
    pub tenant_id: String,
    /// For people to read.
    pub name: String,
    /// IANA name.
    pub time_zone: String,
    /// uz, ru or en.
    pub locale: String,
    /// active, suspended or closed.
    pub status: String,
    /// Whether a fee is unpaid.
    pub payment_overdue: bool,
    /// Since when.
    pub overdue_since: Option<DateTime<Utc>>,
    /// The unpaid fees, the oldest first.
    pub dues: Vec<DueBody>,
}

/// An unpaid fee.
#[derive(Debug, Serialize, ToSchema)]
pub struct DueBody {
    /// Of which subscription.
    pub subscription_id: i64,
    /// For which month.
    #[schema(example = "2026-12")]
    pub month: String,
    /// How much.
    #[schema(example = "150000.00")]
    pub amount: String,
    /// In which currency.
    pub currency: String,
    /// When it fell due.
    pub due_at: DateTime<Utc>,
    /// Since when it is overdue.
    pub overdue_since: DateTime<Utc>,
}

/// What changes about a tenant; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    /// For people to read.
    pub name: Option<String>,
    /// IANA name. Months that are decided stay decided.
    pub time_zone: Option<String>,
    /// uz, ru or en.
    pub locale: Option<String>,
}

impl TenantBody {
    fn new(tenant: &Tenant, unpaid: &[UnpaidDue]) -> Self {
        let suspended = tenant.status == "active" && unpaid.iter().any(|due| due.suspended);
        Self {
            tenant_id: tenant.tenant_id.to_string(),
            name: tenant.name.clone(),
            time_zone: tenant.time_zone.as_str().to_owned(),
            locale: tenant.locale.as_str().to_owned(),
            // Suspended for an unpaid fee: read from the dues, so paying it is all it takes.
            status: if suspended { "suspended".to_owned() } else { tenant.status.clone() },
            payment_overdue: !unpaid.is_empty(),
            overdue_since: unpaid.iter().map(|due| due.overdue_at).min(),
            dues: unpaid
                .iter()
                .map(|due| DueBody {
                    subscription_id: due.fee.subscription_id,
                    month: due.fee.month.to_string(),
                    amount: due.fee.amount.to_text(due.fee.exponent),
                    currency: due.fee.currency.to_string(),
                    due_at: due.due_at,
                    overdue_since: due.overdue_at,
                })
                .collect(),
        }
    }
}

/// Makes a tenant with its so'm wallet. The same again is answered the same.
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = NewTenant,
    responses((status = 201, body = TenantBody), (status = 200, description = "It was there", body = TenantBody),
        (status = 409, description = "tenant_differs", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<TenantsWrite>,
    _: Query<NoParameters>,
    json: Json<NewTenant>,
) -> Result<(StatusCode, axum::Json<TenantBody>), Problem> {
    let body = json.body;
    super::field("name", check_name(&body.name))?;
    let tenant = Tenant {
        tenant_id: super::field("tenant_id", TenantId::parse(body.tenant_id))?,
        name: body.name,
        time_zone: match &body.time_zone {
            Some(zone) => super::field("time_zone", TimeZone::parse(zone))?,
            None => caller.app.settings.time_zone,
        },
        locale: match &body.locale {
            Some(locale) => super::field("locale", Locale::parse(locale))?,
            None => Locale::Uz,
        },
        status: "active".to_owned(),
        created_at: caller.app.clock.now(),
    };
    let asked = &tenant;
    let (tenant, new) =
        caller.db().run("tenant_create", |conn| async move { tenant::create(conn, asked).await }.scope_boxed()).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let unpaid = fee::overdue_of(&mut conn, &tenant.tenant_id).await?;
    Ok((status, axum::Json(TenantBody::new(&tenant, &unpaid))))
}

/// A tenant.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}", tag = "tenants", params(("tenant_id" = String, Path)),
    responses((status = 200, body = TenantBody),
        (status = 404, description = "tenant_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<TenantsRead>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
) -> Result<axum::Json<TenantBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(|| Problem::unknown_tenant(&tenant_id))?;
    let unpaid = fee::overdue_of(&mut conn, &tenant_id).await?;
    Ok(axum::Json(TenantBody::new(&tenant, &unpaid)))
}

/// Changes a tenant's name, time zone or locale.
#[utoipa::path(patch, path = "/v1/tenants/{tenant_id}", tag = "tenants", params(("tenant_id" = String, Path)),
    request_body = TenantChange,
    responses((status = 200, body = TenantBody),
        (status = 404, description = "tenant_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn change(
    caller: Caller<TenantsWrite>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    json: Json<TenantChange>,
) -> Result<axum::Json<TenantBody>, Problem> {
    let body = json.body;
    if let Some(name) = &body.name {
        super::field("name", check_name(name))?;
    }
    let change = &tenant::Change {
        name: body.name,
        time_zone: body.time_zone.map(|zone| super::field("time_zone", TimeZone::parse(&zone))).transpose()?,
        locale: body.locale.map(|locale| super::field("locale", Locale::parse(&locale))).transpose()?,
    };
    let asked = &tenant_id;
    let (tenant, unpaid) = caller
        .db()
        .run("tenant_change", |conn| {
            async move {
                let Some(tenant) = tenant::change(conn, asked, change).await? else { return Ok(None) };
                Ok::<_, crate::fault::Error<tenant::TenantRefusal>>(Some((tenant, fee::overdue_of(conn, asked).await?)))
            }
            .scope_boxed()
        })
        .await?
        .ok_or_else(|| Problem::unknown_tenant(&tenant_id))?;
    Ok(axum::Json(TenantBody::new(&tenant, &unpaid)))
}
