//! The link of an order's invoice.

use super::bot_api::CallError;
use super::{Bot, CURRENCY, Telegram};
use crate::fault::Error;
use crate::ids::OrderId;
use crate::payment::order::{Order, OrderStatus};

/// Telegram's bounds of a title and a description, in characters.
const TITLE_CHARS_MAX: usize = 32;
const DESCRIPTION_CHARS_MAX: usize = 255;

/// Why an order has no invoice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvoiceRefusal {
    /// No bot is set up, or not the one that was named.
    #[error("no such bot is set up: set HAMYON_TELEGRAM_TOKEN and HAMYON_TELEGRAM_WEBHOOK_SECRET")]
    UnknownBot,
    /// Telegram takes stars only.
    #[error("order {0} is not in XTR, and Telegram's invoices for digital goods are")]
    OtherCurrency(OrderId),
    /// It can't be paid.
    #[error("order {order_id} can't be paid: it is {}", status.as_str())]
    NotOpen {
        /// Which.
        order_id: OrderId,
        /// Where it stands.
        status: OrderStatus,
    },
    /// Telegram doesn't make the link.
    #[error("the Bot API made no link: {0}")]
    Call(#[from] CallError),
}

impl Telegram {
    /// Makes the link of an order's invoice. Nothing is stored, and nothing is promised: who opens it is asked about
    /// when they pay.
    ///
    /// # Errors
    /// [`InvoiceRefusal`].
    pub async fn invoice_link(
        &self,
        order: &Order,
        status: OrderStatus,
        bot_id: Option<i64>,
    ) -> Result<String, Error<InvoiceRefusal>> {
        let refused = |refusal| Err(Error::Refused(refusal));
        let order_id = order.order_id.clone();
        let bot: Option<&Bot> = match bot_id {
            Some(bot_id) => self.bots().iter().find(|bot| bot.bot_id == bot_id),
            None => self.bots().first(),
        };
        let Some(bot) = bot else { return refused(InvoiceRefusal::UnknownBot) };
        if order.currency.as_str() != CURRENCY {
            return refused(InvoiceRefusal::OtherCurrency(order_id));
        }
        if status != OrderStatus::Open {
            return refused(InvoiceRefusal::NotOpen { order_id, status });
        }
        let cut = |most: usize| order.title.chars().take(most).collect::<String>();
        let (title, description) = (cut(TITLE_CHARS_MAX), cut(DESCRIPTION_CHARS_MAX));
        let link = self.api.create_invoice_link(bot, &title, &description, order.order_id.as_str(), order.amount);
        link.await.map_err(|error| Error::Refused(error.into()))
    }
}
