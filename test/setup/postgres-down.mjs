export default async function postgresDown() {
  const running = globalThis.__rookeryPostgres;
  if (!running) return;
  await running.postgres.stop();
  await running.remove();
}
