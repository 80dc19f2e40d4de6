/** A counter or gauge without labels of its own, as the metrics listener of a process shows it; 0 where it is not there. */
export async function shownMetric(baseUrl: string, name: string): Promise<number> {
  const page = await (await fetch(`${baseUrl}/_synapse/metrics`)).text();
  return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(page)?.[1] ?? 0);
}
