import type { Migration, Tx } from '@rookery/database';

async function files(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE local_media_repository (
       media_id TEXT NOT NULL UNIQUE, media_type TEXT, media_length BIGINT, created_ts BIGINT, upload_name TEXT, user_id TEXT,
       quarantined_by TEXT, url_cache TEXT, last_access_ts BIGINT, safe_from_quarantine BOOLEAN NOT NULL DEFAULT FALSE,
       authenticated BOOLEAN NOT NULL DEFAULT FALSE, sha256 TEXT)`,
  );
  await tx.run('CREATE INDEX local_media_repository_user ON local_media_repository (user_id, created_ts)');
  await tx.run('CREATE INDEX local_media_repository_hash ON local_media_repository (sha256) WHERE sha256 IS NOT NULL');
  await tx.run(
    'CREATE INDEX local_media_repository_pages ON local_media_repository (created_ts) WHERE url_cache IS NOT NULL',
  );
  await tx.run(
    'CREATE INDEX local_media_repository_pending ON local_media_repository (created_ts) WHERE media_length IS NULL',
  );
  await tx.run(
    `CREATE TABLE local_media_repository_thumbnails (
       media_id TEXT NOT NULL, thumbnail_width INTEGER NOT NULL, thumbnail_height INTEGER NOT NULL,
       thumbnail_type TEXT NOT NULL, thumbnail_method TEXT NOT NULL, thumbnail_length BIGINT NOT NULL,
       UNIQUE (media_id, thumbnail_width, thumbnail_height, thumbnail_type, thumbnail_method))`,
  );
  await tx.run(
    `CREATE TABLE remote_media_cache (
       media_origin TEXT NOT NULL, media_id TEXT NOT NULL, media_type TEXT, created_ts BIGINT, upload_name TEXT,
       media_length BIGINT, filesystem_id TEXT NOT NULL, last_access_ts BIGINT, quarantined_by TEXT,
       authenticated BOOLEAN NOT NULL DEFAULT FALSE, sha256 TEXT, UNIQUE (media_origin, media_id))`,
  );
  await tx.run('CREATE INDEX remote_media_cache_hash ON remote_media_cache (sha256) WHERE sha256 IS NOT NULL');
  await tx.run(
    `CREATE TABLE remote_media_cache_thumbnails (
       media_origin TEXT NOT NULL, media_id TEXT NOT NULL, thumbnail_width INTEGER NOT NULL,
       thumbnail_height INTEGER NOT NULL, thumbnail_method TEXT NOT NULL, thumbnail_type TEXT NOT NULL,
       thumbnail_length BIGINT NOT NULL, filesystem_id TEXT NOT NULL,
       UNIQUE (media_origin, media_id, thumbnail_width, thumbnail_height, thumbnail_type, thumbnail_method))`,
  );
}

async function quarantineChanges(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE quarantined_media_changes (
       stream_id ${tx.dialect.identityType}, instance_name TEXT NOT NULL, origin TEXT, media_id TEXT NOT NULL,
       quarantined BOOLEAN NOT NULL)`,
  );
}

async function pages(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE local_media_repository_url_cache (
       url TEXT NOT NULL, response_code INTEGER, etag TEXT, expires_ts BIGINT, og TEXT, media_id TEXT, download_ts BIGINT)`,
  );
  await tx.run(
    'CREATE INDEX local_media_repository_url_cache_url ON local_media_repository_url_cache (url, download_ts)',
  );
  await tx.run('CREATE INDEX local_media_repository_url_cache_expiry ON local_media_repository_url_cache (expires_ts)');
}

async function filesByName(tx: Tx): Promise<void> {
  await tx.run('CREATE INDEX remote_media_cache_file ON remote_media_cache (media_origin, filesystem_id)');
}

/** The tables of media: files and thumbnails of this server and others, changes of quarantine, pages that were previewed. */
export const mediaMigrations: readonly Migration[] = [
  { version: 1, name: 'media_01_files', up: files },
  { version: 1, name: 'media_02_quarantine_changes', up: quarantineChanges },
  { version: 1, name: 'media_03_pages', up: pages },
  {
    ...{ version: 1, name: 'media_04_files_by_name', up: filesByName },
    cost: [{ tables: ['remote_media_cache'], secondsPerMillion: 2 }],
  },
];
