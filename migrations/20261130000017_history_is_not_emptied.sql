-- What is history and what passes through states can't be emptied at one stroke either, by nobody.
DO $$
DECLARE
    history text;
BEGIN
    FOREACH history IN ARRAY ARRAY[
        'allowances', 'allowance_tiers', 'allowance_assignments', 'allowance_cycles', 'due_reminders',
        'fee_run_confirmations', 'fee_runs', 'hold_tiers', 'payment_account_values', 'plan_prices', 'plans',
        'price_book_models', 'price_books', 'webhook_attempts', 'webhook_endpoints']
    LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()',
                       history || '_are_kept', history);
    END LOOP;
END;
$$;
-- The values by which support finds a payment are never changed.
CREATE TRIGGER payment_account_values_are_history BEFORE UPDATE OR DELETE ON payment_account_values
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
