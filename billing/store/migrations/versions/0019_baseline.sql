-- Tables and indexes of the ledger. What is in braces each database spells in its own way: 0019_baseline.py runs this.

CREATE TABLE workspaces (
    id VARCHAR(32) NOT NULL,
    name VARCHAR(64) NOT NULL,
    billing_enabled BOOLEAN NOT NULL,
    spend_limit_nano_usd BIGINT,
    monthly_limit_nano_usd BIGINT,
    posted_nano_usd BIGINT NOT NULL,
    held_nano_usd BIGINT NOT NULL,
    month VARCHAR(7) NOT NULL,
    month_posted_nano_usd BIGINT NOT NULL,
    created_at {time} NOT NULL,
    revoked_at {time},
    collected_nano_usd BIGINT DEFAULT 0 NOT NULL CONSTRAINT ck_workspaces_collected CHECK (collected_nano_usd BETWEEN 0 AND posted_nano_usd),
    credited_nano_usd BIGINT DEFAULT 0 NOT NULL CONSTRAINT ck_workspaces_credited CHECK (credited_nano_usd >= 0),
    has_limited_keys BOOLEAN DEFAULT {false} NOT NULL,
    CONSTRAINT pk_workspaces PRIMARY KEY (id),
    CONSTRAINT uq_workspaces_name UNIQUE (name),
    CONSTRAINT ck_workspaces_posted CHECK (posted_nano_usd >= 0),
    CONSTRAINT ck_workspaces_held CHECK (held_nano_usd >= 0)
);

CREATE TABLE projects (
    id VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    name VARCHAR(64) NOT NULL,
    metered BOOLEAN NOT NULL,
    requests_per_minute BIGINT,
    tokens_per_minute BIGINT,
    max_in_flight BIGINT,
    created_at {time} NOT NULL,
    revoked_at {time},
    weight INTEGER DEFAULT 1 NOT NULL CONSTRAINT ck_projects_weight CHECK (weight BETWEEN 1 AND 1000),
    compression TEXT,
    CONSTRAINT pk_projects PRIMARY KEY (id),
    CONSTRAINT fk_projects_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    CONSTRAINT uq_projects_workspace_id UNIQUE (workspace_id, name)
);

CREATE TABLE api_keys (
    id VARCHAR(16) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    name VARCHAR(64) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    created_at {time} NOT NULL,
    revoked_at {time},
    expires_at {double},
    last_used_at {double},
    allowed_models TEXT,
    allowed_routes TEXT,
    requests_per_minute BIGINT,
    tokens_per_minute BIGINT,
    max_in_flight BIGINT,
    spend_limit_nano_usd BIGINT,
    monthly_limit_nano_usd BIGINT,
    posted_nano_usd BIGINT DEFAULT 0 NOT NULL CONSTRAINT ck_api_keys_posted CHECK (posted_nano_usd >= 0),
    held_nano_usd BIGINT DEFAULT 0 NOT NULL CONSTRAINT ck_api_keys_held CHECK (held_nano_usd >= 0),
    month VARCHAR(7),
    month_posted_nano_usd BIGINT DEFAULT '0' NOT NULL,
    budget_key_id VARCHAR(16),
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT fk_api_keys_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_api_keys_project_id ON api_keys (project_id);

CREATE TABLE price_lists (
    version INTEGER NOT NULL,
    created_at {time} NOT NULL,
    CONSTRAINT pk_price_lists PRIMARY KEY (version)
);

CREATE TABLE prices (
    version INTEGER NOT NULL,
    model_id VARCHAR(256) NOT NULL,
    input_micro_usd_per_mtok BIGINT NOT NULL,
    output_micro_usd_per_mtok BIGINT NOT NULL,
    minimum_nano_usd BIGINT NOT NULL,
    cached_input_micro_usd_per_mtok BIGINT,
    CONSTRAINT pk_prices PRIMARY KEY (version, model_id),
    CONSTRAINT fk_prices_version FOREIGN KEY(version) REFERENCES price_lists (version)
);

CREATE TABLE holds (
    event_id VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    amount_nano_usd BIGINT NOT NULL,
    created_at {time} NOT NULL,
    owner VARCHAR(32) DEFAULT '' NOT NULL,
    expires_at {double} DEFAULT '0' NOT NULL,
    key_id VARCHAR(16),
    CONSTRAINT pk_holds PRIMARY KEY (event_id),
    CONSTRAINT fk_holds_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);
CREATE INDEX ix_holds_created_at ON holds (created_at);

CREATE TABLE usage_events (
    event_id VARCHAR(32) NOT NULL,
    request_id VARCHAR(128) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    key_id VARCHAR(16) NOT NULL,
    model_id VARCHAR(256) NOT NULL,
    pricing_version INTEGER NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    subtotal_nano_usd BIGINT NOT NULL,
    minimum_applied BOOLEAN NOT NULL,
    cost_nano_usd BIGINT NOT NULL,
    outcome VARCHAR(16) NOT NULL,
    stream BOOLEAN NOT NULL,
    created_at {time} NOT NULL,
    settled_at {time} NOT NULL,
    receipt TEXT,
    offline BOOLEAN DEFAULT {false} NOT NULL,
    written_off_nano_usd BIGINT DEFAULT 0 NOT NULL CONSTRAINT ck_usage_events_written_off CHECK (written_off_nano_usd BETWEEN 0 AND cost_nano_usd),
    month VARCHAR(7),
    original_tokens BIGINT,
    original_cached_tokens BIGINT,
    saved_nano_usd BIGINT DEFAULT '0' NOT NULL,
    compression_nano_usd BIGINT DEFAULT '0' NOT NULL,
    compression VARCHAR(16),
    conversation VARCHAR(32),
    paired_with VARCHAR(32),
    price_ppm INTEGER DEFAULT '1000000' NOT NULL,
    route VARCHAR(32),
    CONSTRAINT pk_usage_events PRIMARY KEY (event_id),
    CONSTRAINT fk_usage_events_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    CONSTRAINT fk_usage_events_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT fk_usage_events_key_id FOREIGN KEY(key_id) REFERENCES api_keys (id),
    CONSTRAINT fk_usage_events_pricing_version FOREIGN KEY(pricing_version, model_id) REFERENCES prices (version, model_id),
    CONSTRAINT ck_usage_events_cost CHECK (cost_nano_usd >= 0)
){by_event_id};
CREATE INDEX ix_usage_events_workspace_id ON usage_events (workspace_id, settled_at);

CREATE TABLE collections (
    id VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    idempotency_key VARCHAR(64) NOT NULL,
    cents BIGINT NOT NULL,
    nano_usd BIGINT NOT NULL,
    state VARCHAR(8) NOT NULL,
    reference VARCHAR(256),
    note VARCHAR(1024),
    times_opened INTEGER NOT NULL,
    hook_attempts INTEGER NOT NULL,
    hook_due_at {time},
    handed_over_at {time},
    created_at {time} NOT NULL,
    updated_at {time} NOT NULL,
    closed_at {time},
    CONSTRAINT pk_collections PRIMARY KEY (id),
    CONSTRAINT fk_collections_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    CONSTRAINT uq_collections_idempotency_key UNIQUE (idempotency_key),
    CONSTRAINT ck_collections_amount CHECK (cents > 0 AND nano_usd = cents * 10000000),
    CONSTRAINT ck_collections_state CHECK (state IN ('open', 'paid', 'failed', 'void')),
    CONSTRAINT ck_collections_closed CHECK ((state IN ('paid', 'void')) = (closed_at IS NOT NULL))
);
CREATE INDEX ix_collections_workspace_id ON collections (workspace_id, created_at);
CREATE INDEX ix_collections_state ON collections (state, created_at);

CREATE TABLE audit_log (
    id {serial} NOT NULL,
    at {time} NOT NULL,
    actor VARCHAR(128) NOT NULL,
    action VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32),
    subject VARCHAR(64) NOT NULL,
    details TEXT NOT NULL,
    CONSTRAINT pk_audit_log PRIMARY KEY (id)
);
CREATE INDEX ix_audit_log_at ON audit_log (at);

CREATE TABLE workspace_months (
    workspace_id VARCHAR(32) NOT NULL,
    month VARCHAR(7) NOT NULL,
    posted_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_workspace_months PRIMARY KEY (workspace_id, month),
    CONSTRAINT fk_workspace_months_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);

CREATE TABLE originals (
    project_id VARCHAR(32) NOT NULL,
    id VARCHAR(64) NOT NULL,
    generation VARCHAR(32) NOT NULL,
    characters BIGINT NOT NULL,
    chunks INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    complete BOOLEAN NOT NULL,
    expires_at {double} NOT NULL,
    CONSTRAINT pk_originals PRIMARY KEY (project_id, id),
    CONSTRAINT uq_originals_generation UNIQUE (generation),
    CONSTRAINT fk_originals_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_originals_expires_at ON originals (expires_at);

CREATE TABLE original_chunks (
    generation VARCHAR(32) NOT NULL,
    number INTEGER NOT NULL,
    ciphertext {bytes} NOT NULL,
    CONSTRAINT pk_original_chunks PRIMARY KEY (generation, number),
    CONSTRAINT fk_original_chunks_generation FOREIGN KEY(generation) REFERENCES originals (generation)
);

CREATE TABLE original_totals (
    project_id VARCHAR(32) NOT NULL,
    bytes BIGINT NOT NULL,
    CONSTRAINT pk_original_totals PRIMARY KEY (project_id),
    CONSTRAINT fk_original_totals_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT ck_original_totals_bytes CHECK (bytes >= 0)
);

CREATE TABLE batch_files (
    id VARCHAR(64) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    filename VARCHAR(255) NOT NULL,
    purpose VARCHAR(16) NOT NULL,
    bytes BIGINT NOT NULL,
    complete BOOLEAN NOT NULL,
    created_at {double} NOT NULL,
    expires_at {double} NOT NULL,
    store VARCHAR(32) DEFAULT '' NOT NULL,
    counted BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT pk_batch_files PRIMARY KEY (id),
    CONSTRAINT fk_batch_files_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_batch_files_project_id ON batch_files (project_id, created_at, id);
CREATE INDEX ix_batch_files_expires_at ON batch_files (expires_at);

CREATE TABLE batch_file_totals (
    project_id VARCHAR(32) NOT NULL,
    files INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    CONSTRAINT pk_batch_file_totals PRIMARY KEY (project_id),
    CONSTRAINT fk_batch_file_totals_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT ck_batch_file_totals_sums CHECK (files >= 0 AND bytes >= 0)
);

CREATE TABLE batches (
    id VARCHAR(64) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    key_id VARCHAR(16) NOT NULL,
    input_file_id VARCHAR(64) NOT NULL,
    endpoint VARCHAR(64) NOT NULL,
    completion_window VARCHAR(16) NOT NULL,
    metadata_json TEXT,
    pricing_version INTEGER NOT NULL,
    price_ppm INTEGER NOT NULL,
    status VARCHAR(16) NOT NULL,
    ends_as VARCHAR(16) NOT NULL,
    worker VARCHAR(32),
    leased_until {double} NOT NULL,
    created_at {double} NOT NULL,
    expires_at {double} NOT NULL,
    in_progress_at {double},
    finalizing_at {double},
    completed_at {double},
    failed_at {double},
    cancelling_at {double},
    cancelled_at {double},
    expired_at {double},
    lines INTEGER NOT NULL,
    lines_completed INTEGER NOT NULL,
    lines_failed INTEGER NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    errors TEXT,
    output_file_id VARCHAR(64),
    error_file_id VARCHAR(64),
    cleared BOOLEAN NOT NULL,
    store VARCHAR(32) DEFAULT '' NOT NULL,
    deployment VARCHAR(64) DEFAULT '' NOT NULL,
    CONSTRAINT pk_batches PRIMARY KEY (id),
    CONSTRAINT fk_batches_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT fk_batches_key_id FOREIGN KEY(key_id) REFERENCES api_keys (id)
);
CREATE INDEX ix_batches_project_id ON batches (project_id, created_at, id);
CREATE INDEX ix_batches_cleared ON batches (cleared, status);
CREATE INDEX ix_batches_input_file_id ON batches (input_file_id);

CREATE TABLE batch_lines (
    batch_id VARCHAR(64) NOT NULL,
    number INTEGER NOT NULL,
    custom_id VARCHAR(512) NOT NULL,
    offset_bytes BIGINT NOT NULL,
    length_bytes INTEGER NOT NULL,
    state VARCHAR(16) NOT NULL,
    claim VARCHAR(32),
    claimable_at {double} NOT NULL,
    attempts INTEGER NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    result TEXT,
    CONSTRAINT pk_batch_lines PRIMARY KEY (batch_id, number),
    CONSTRAINT uq_batch_lines_batch_id UNIQUE (batch_id, custom_id),
    CONSTRAINT fk_batch_lines_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE INDEX ix_batch_lines_state ON batch_lines (batch_id, state, number);

CREATE TABLE adjustments (
    id VARCHAR(40) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    nano_usd BIGINT NOT NULL,
    event_id VARCHAR(32),
    project_id VARCHAR(32),
    key_id VARCHAR(16),
    month VARCHAR(7) NOT NULL,
    created_at {time} NOT NULL,
    actor VARCHAR(128) NOT NULL,
    reason VARCHAR(1024) NOT NULL,
    idempotency_key VARCHAR(128) NOT NULL,
    refunds_rest BOOLEAN DEFAULT {false} NOT NULL,
    CONSTRAINT pk_adjustments PRIMARY KEY (id),
    CONSTRAINT fk_adjustments_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    CONSTRAINT uq_adjustments_workspace_id UNIQUE (workspace_id, idempotency_key),
    CONSTRAINT ck_adjustments_amount CHECK (kind IN ('credit', 'adjustment', 'refund') AND nano_usd <> 0 AND (nano_usd < 0 OR kind = 'adjustment')),
    CONSTRAINT ck_adjustments_event CHECK ((kind = 'refund') = (event_id IS NOT NULL))
);
CREATE INDEX ix_adjustments_workspace_id ON adjustments (workspace_id, created_at, id);
CREATE INDEX ix_adjustments_event_id ON adjustments (event_id);

CREATE TABLE key_months (
    key_id VARCHAR(16) NOT NULL,
    month VARCHAR(7) NOT NULL,
    posted_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_key_months PRIMARY KEY (key_id, month),
    CONSTRAINT fk_key_months_key_id FOREIGN KEY(key_id) REFERENCES api_keys (id)
);

CREATE TABLE webhook_endpoints (
    id VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32),
    url VARCHAR(2048) NOT NULL,
    events TEXT NOT NULL,
    secret {bytes},
    old_secret {bytes},
    old_secret_until {double} NOT NULL,
    state VARCHAR(8) NOT NULL,
    state_reason VARCHAR(256),
    failures INTEGER NOT NULL,
    worker VARCHAR(32),
    leased_until {double} NOT NULL,
    created_at {double} NOT NULL,
    CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id),
    CONSTRAINT fk_webhook_endpoints_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    CONSTRAINT ck_webhook_endpoints_state CHECK (state IN ('active', 'disabled', 'removed'))
);
CREATE INDEX ix_webhook_endpoints_workspace_id ON webhook_endpoints (workspace_id);

CREATE TABLE webhook_events (
    id VARCHAR(32) NOT NULL,
    type VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32),
    payload TEXT NOT NULL,
    created_at {double} NOT NULL,
    CONSTRAINT pk_webhook_events PRIMARY KEY (id),
    CONSTRAINT fk_webhook_events_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);
CREATE INDEX ix_webhook_events_created_at ON webhook_events (created_at);

CREATE TABLE webhook_deliveries (
    event_id VARCHAR(32) NOT NULL,
    endpoint_id VARCHAR(32) NOT NULL,
    state VARCHAR(9) NOT NULL,
    attempts INTEGER NOT NULL,
    due_at {double} NOT NULL,
    give_up_at {double} NOT NULL,
    last_tried_at {double},
    last_status INTEGER,
    last_error VARCHAR(256),
    delivered_at {double},
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (event_id, endpoint_id),
    CONSTRAINT fk_webhook_deliveries_event_id FOREIGN KEY(event_id) REFERENCES webhook_events (id),
    CONSTRAINT fk_webhook_deliveries_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id),
    CONSTRAINT ck_webhook_deliveries_state CHECK (state IN ('waiting', 'delivered', 'failed', 'cancelled'))
);
CREATE INDEX ix_webhook_deliveries_endpoint_id ON webhook_deliveries (endpoint_id, state, due_at);
CREATE INDEX ix_webhook_deliveries_state ON webhook_deliveries (state, due_at);

CREATE TABLE limit_alerts (
    workspace_id VARCHAR(32) NOT NULL,
    key_id VARCHAR(16) NOT NULL,
    span VARCHAR(8) NOT NULL,
    month VARCHAR(7) NOT NULL,
    limit_nano_usd BIGINT NOT NULL,
    percent INTEGER NOT NULL,
    reached_at {double} NOT NULL,
    CONSTRAINT pk_limit_alerts PRIMARY KEY (workspace_id, key_id, span, month, limit_nano_usd, percent),
    CONSTRAINT fk_limit_alerts_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);

CREATE TABLE usage_days (
    workspace_id VARCHAR(32) NOT NULL,
    day VARCHAR(10) NOT NULL,
    month VARCHAR(7) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    key_id VARCHAR(16) NOT NULL,
    model_id VARCHAR(256) NOT NULL,
    route VARCHAR(32) NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    cost_nano_usd BIGINT NOT NULL,
    written_off_nano_usd BIGINT NOT NULL,
    tokens_saved BIGINT NOT NULL,
    saved_nano_usd BIGINT NOT NULL,
    compression_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_usage_days PRIMARY KEY (workspace_id, day, month, project_id, key_id, model_id, route)
){without_rowid};

CREATE TABLE usage_months (
    workspace_id VARCHAR(32) NOT NULL,
    settled_month VARCHAR(7) NOT NULL,
    month VARCHAR(7) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    key_id VARCHAR(16) NOT NULL,
    model_id VARCHAR(256) NOT NULL,
    route VARCHAR(32) NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    cost_nano_usd BIGINT NOT NULL,
    written_off_nano_usd BIGINT NOT NULL,
    tokens_saved BIGINT NOT NULL,
    saved_nano_usd BIGINT NOT NULL,
    compression_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_usage_months PRIMARY KEY (workspace_id, settled_month, month, project_id, key_id, model_id, route)
){without_rowid};
CREATE INDEX ix_usage_days_day ON usage_days (day);

CREATE TABLE event_checkpoints (
    from_id VARCHAR(32) NOT NULL,
    until_id VARCHAR(32) NOT NULL,
    version INTEGER NOT NULL,
    digest VARCHAR(64),
    events BIGINT NOT NULL,
    read_number BIGINT NOT NULL,
    CONSTRAINT pk_event_checkpoints PRIMARY KEY (from_id)
);
CREATE INDEX ix_event_checkpoints_read_number ON event_checkpoints (read_number);

CREATE TABLE checkpoint_sums (
    from_id VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    month VARCHAR(7) NOT NULL,
    events BIGINT NOT NULL,
    charged_nano_usd BIGINT NOT NULL,
    written_off_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_checkpoint_sums PRIMARY KEY (from_id, workspace_id, month),
    CONSTRAINT fk_checkpoint_sums_from_id FOREIGN KEY(from_id) REFERENCES event_checkpoints (from_id)
);
CREATE INDEX ix_usage_events_conversation ON usage_events (workspace_id, month) WHERE conversation IS NOT NULL;

CREATE TABLE archived_months (
    month VARCHAR(7) NOT NULL,
    from_id VARCHAR(32) NOT NULL,
    until_id VARCHAR(32) NOT NULL,
    state VARCHAR(8) NOT NULL,
    sealed_at {time} NOT NULL,
    archived_at {time},
    events BIGINT,
    charged_nano_usd BIGINT,
    written_off_nano_usd BIGINT,
    last_settled_at {time},
    manifest TEXT,
    CONSTRAINT pk_archived_months PRIMARY KEY (month),
    CONSTRAINT ck_archived_months_state CHECK (state IN ('sealed', 'dropping', 'dropped')),
    CONSTRAINT ck_archived_months_manifest CHECK ((state = 'sealed') = (manifest IS NULL))
);

CREATE TABLE archived_days (
    archived_month VARCHAR(7) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    day VARCHAR(10) NOT NULL,
    month VARCHAR(7) NOT NULL,
    project_id VARCHAR(32) NOT NULL,
    key_id VARCHAR(16) NOT NULL,
    model_id VARCHAR(256) NOT NULL,
    route VARCHAR(32) NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    cost_nano_usd BIGINT NOT NULL,
    written_off_nano_usd BIGINT NOT NULL,
    tokens_saved BIGINT NOT NULL,
    saved_nano_usd BIGINT NOT NULL,
    compression_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_archived_days PRIMARY KEY (archived_month, workspace_id, day, month, project_id, key_id, model_id, route),
    CONSTRAINT fk_archived_days_archived_month FOREIGN KEY(archived_month) REFERENCES archived_months (month)
);
CREATE INDEX ix_archived_days_workspace_id ON archived_days (workspace_id, day);

CREATE TABLE archived_refunds (
    event_id VARCHAR(32) NOT NULL,
    workspace_id VARCHAR(32) NOT NULL,
    charged_nano_usd BIGINT NOT NULL,
    CONSTRAINT pk_archived_refunds PRIMARY KEY (event_id)
);

CREATE TABLE late_events (
    event_id VARCHAR(32) NOT NULL,
    admitted_at {time} NOT NULL,
    CONSTRAINT pk_late_events PRIMARY KEY (event_id)
);
CREATE INDEX ix_workspaces_created_at ON workspaces (created_at, id);
CREATE INDEX ix_projects_created_at ON projects (created_at, id);
CREATE INDEX ix_api_keys_created_at ON api_keys (created_at, id);
CREATE INDEX ix_collections_created_at ON collections (created_at, id);
CREATE INDEX ix_adjustments_created_at ON adjustments (created_at, id);
CREATE INDEX ix_webhook_endpoints_created_at ON webhook_endpoints (created_at, id);

CREATE TABLE file_stores (
    id VARCHAR(32) NOT NULL,
    seen_at {double} NOT NULL,
    CONSTRAINT pk_file_stores PRIMARY KEY (id)
);

CREATE TABLE administrators_requests (
    actor VARCHAR(128) NOT NULL,
    idempotency_key VARCHAR(128) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    began_at {double} NOT NULL,
    CONSTRAINT pk_administrators_requests PRIMARY KEY (actor, idempotency_key)
);
