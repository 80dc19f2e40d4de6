const colors: Readonly<Record<string, string>> = { trace: '90', debug: '90', info: '32', warn: '33', error: '31' };
const known = new Set(['level', 'time', 'msg', 'logger', 'requestId', 'err']);

/** What a JSON line says, in parts; `undefined` for one that is none. */
export function readLine(
  json: string,
  paint: (code: string, text: string) => string = (_, text) => text,
): { readonly line: Readonly<Record<string, unknown>>; readonly message: string; readonly stack: string } | undefined {
  let line: Record<string, unknown>;
  try {
    line = JSON.parse(json) as Record<string, unknown>;
  } catch {
    return undefined;
  }
  const fields = Object.entries(line)
    .filter(([name]) => !known.has(name))
    .map(
      ([name, value]) =>
        ` ${paint('90', `${name}=`)}${oneLine(typeof value === 'string' ? value : JSON.stringify(value))}`,
    )
    .join('');
  return { line, message: `${oneLine(String(line['msg'] ?? ''))}${fields}`, stack: stack(line['err']) };
}

/** A JSON line as a person reads it: `12:30:01.123 INFO  rooms: Joined room_id=!a:b {request id}`; the day in front where asked. */
export function readableLine(json: string, color: boolean, withDate = false): string {
  const paint = (code: string, text: string): string => (color ? `\u001b[${code}m${text}\u001b[0m` : text);
  const read = readLine(json, paint);
  if (read === undefined) return json;
  const { line, message } = read;
  const level = String(line['level']);
  const logger = line['logger'] === undefined ? '' : `${paint('36', String(line['logger']))}: `;
  const request = line['requestId'] === undefined ? '' : paint('90', ` {${oneLine(String(line['requestId']))}}`);
  const head = `${paint('90', String(line['time']).slice(withDate ? 0 : 11, 23))} ${paint(colors[level] ?? '0', level.toUpperCase().padEnd(5))} `;
  return `${head}${logger}${message}${request}\n${read.stack}`;
}

/** Control characters would let a remote user write lines of their own, or steer the terminal. */
const oneLine = (text: string): string =>
  text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, (char) =>
    JSON.stringify(char)
      .slice(1, -1)
      .replace(/^[^\\].*$/, '?'),
  );

function stack(err: unknown): string {
  if (typeof err !== 'object' || err === null) return err === undefined ? '' : `    ${oneLine(String(err))}\n`;
  const { stack: trace, message } = err as { stack?: unknown; message?: unknown };
  return String(trace ?? message ?? JSON.stringify(err))
    .split('\n')
    .map((line) => `    ${oneLine(line)}\n`)
    .join('');
}
