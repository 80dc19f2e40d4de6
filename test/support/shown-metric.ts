/**
 * A counter or gauge as the metrics listener of a process shows it; 0 where it is not there.
 * @param label one of its own that it has, as it is written: `service="irc"`
 */
export async function shownMetric(baseUrl: string, name: string, label = ''): Promise<number> {
  const page = await (await fetch(`${baseUrl}/_synapse/metrics`)).text();
  const labels = label === '' ? '(?:\\{[^}]*\\})?' : `\\{[^}]*${label}[^}]*\\}`;
  return Number(new RegExp(`^${name}${labels} (\\S+)$`, 'm').exec(page)?.[1] ?? 0);
}
