import pg from 'pg';

export default async function postgresDown() {
  const running = globalThis.__rookeryPostgres;
  if (!running) return removeTemplate();
  await running.postgres.stop();
  await running.remove();
}

/** From a PostgreSQL that goes on. */
async function removeTemplate() {
  const client = new pg.Client({ connectionString: process.env.ROOKERY_TEST_POSTGRES });
  await client.connect();
  try {
    await client.query(`DROP DATABASE IF EXISTS ${process.env.ROOKERY_TEST_TEMPLATE} WITH (FORCE)`);
  } finally {
    await client.end();
  }
}
