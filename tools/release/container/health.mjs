// Asks the server whether it is well.
const port = process.env.ROOKERY_HEALTH_PORT ?? '8008';
const answer = await fetch(`http://127.0.0.1:${port}/health`).catch(() => undefined);
process.exit(answer?.status === 200 ? 0 : 1);
