//! Tenants.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::http::error::Problem;
use crate::http::extract::{Caller, Json, Named, TenantsRead, TenantsWrite};
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
    /// IANA name; Asia/Tashkent when left out.
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
    /// Whether a fee is unpaid. There are no fees yet, so it is false.
    pub payment_overdue: bool,
    /// Since when.
    pub overdue_since: Option<DateTime<Utc>>,
}

impl From<&Tenant> for TenantBody {
    fn from(tenant: &Tenant) -> Self {
        Self {
            tenant_id: tenant.tenant_id.to_string(),
            name: tenant.name.clone(),
            time_zone: tenant.time_zone.as_str().to_owned(),
            locale: tenant.locale.as_str().to_owned(),
            status: tenant.status.clone(),
            payment_overdue: false,
            overdue_since: None,
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
    json: Json<NewTenant>,
) -> Result<(StatusCode, axum::Json<TenantBody>), Problem> {
    let body = json.body;
    super::field("name", check_name(&body.name))?;
    let tenant = Tenant {
        tenant_id: super::field("tenant_id", TenantId::parse(body.tenant_id))?,
        name: body.name,
        time_zone: match &body.time_zone {
            Some(zone) => super::field("time_zone", TimeZone::parse(zone))?,
            None => TimeZone::TASHKENT,
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
    Ok((status, axum::Json(TenantBody::from(&tenant))))
}

/// A tenant.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}", tag = "tenants", params(("tenant_id" = String, Path)),
    responses((status = 200, body = TenantBody),
        (status = 404, description = "tenant_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<TenantsRead>,
    Named(tenant_id): Named<TenantId>,
) -> Result<axum::Json<TenantBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(|| Problem::unknown_tenant(&tenant_id))?;
    Ok(axum::Json(TenantBody::from(&tenant)))
}
