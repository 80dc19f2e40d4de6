import { createSocket } from 'node:dgram';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Config } from '../config/config.js';
import { SettingsError } from '../config/problem.js';
import { loggerOptions, readLogConfig } from './log-config.js';
import { LogContext } from './log-context.js';
import { eventually } from '@rookery/testing';
import { RotatingFile, WatchedFile } from './outputs.js';
import { PinoLogger } from './pino-logger.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-log-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const collect = (options: Partial<Parameters<typeof PinoLogger.create>[0]> = {}) => {
  const lines: string[] = [];
  return { lines, logger: PinoLogger.create({ level: 'info', write: (line) => lines.push(line), ...options }) };
};
const parsed = (lines: string[]): Record<string, unknown>[] =>
  lines.map((line) => JSON.parse(line) as Record<string, unknown>);

describe('the logger', () => {
  it('writes JSON lines with time, level, name, fields and error', () => {
    const { lines, logger } = collect();
    logger
      .child('rooms')
      .child('sending', { shard: 1 })
      .error('Failed', { room_id: '!a:b', err: new Error('boom') });
    expect(parsed(lines)).toEqual([
      {
        level: 'error',
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
        logger: 'rooms.sending',
        shard: 1,
        room_id: '!a:b',
        err: expect.objectContaining({ message: 'boom', stack: expect.stringContaining('boom') }),
        msg: 'Failed',
      },
    ]);
    expect(lines[0]!.match(/"logger"/g)).toHaveLength(1);
  });

  it('carries the request id through awaits, and to nobody else', async () => {
    const { lines, logger } = collect();
    const work = async (requestId: string): Promise<void> => {
      await Promise.resolve();
      logger.info('Working', { of: requestId });
    };
    await Promise.all([
      LogContext.run({ requestId: 'r1' }, () => work('r1')),
      LogContext.run({ requestId: 'r2' }, () => work('r2')),
      work('none'),
    ]);
    logger.info('Alone');
    expect(parsed(lines).map((line) => [line['of'], line['requestId']])).toEqual([
      ['r1', 'r1'],
      ['r2', 'r2'],
      ['none', undefined],
      [undefined, undefined],
    ]);
    expect(LogContext.current()).toBeUndefined();
  });

  it('has levels by name, which change while it runs', () => {
    const { lines, logger } = collect({ levels: { rooms: 'debug', 'rooms.noisy': 'error' } });
    const rooms = logger.child('rooms');
    const deep = rooms.child('sending');
    const noisy = rooms.child('noisy');
    const say = (): void => [logger, rooms, deep, noisy].forEach((one, index) => one.debug(String(index)));
    say();
    expect(parsed(lines).map((line) => line['msg'])).toEqual(['1', '2']);
    expect([logger.isEnabled('debug'), deep.isEnabled('debug'), noisy.isEnabled('warn')]).toEqual([false, true, false]);
    lines.length = 0;
    logger.setLevels({ level: 'debug', levels: { rooms: 'info' } });
    say();
    expect(parsed(lines).map((line) => line['msg'])).toEqual(['0']);
  });

  it('hides what must not be in a log', () => {
    const { lines, logger } = collect();
    logger.info('Login', {
      password: 'hunter2',
      access_token: 'hunter2',

      headers: { authorization: 'hunter2' },
    });
    expect(lines.join()).not.toContain('hunter2');
    expect(lines.join()).toContain('[hidden]');
  });

  it('is readable in a terminal, one line per message whatever a remote user sends', () => {
    const file = join(folder, 'text.log');
    const logger = PinoLogger.create({ level: 'info', format: 'text', file });
    LogContext.run({ requestId: 'GET-1' }, () =>
      logger.child('http').warn('Odd request', { user: '@a:b\n00:00:00 ERROR forged \u001b[31m', size: 3 }),
    );
    logger.error('Broken', { err: new Error('boom') });
    const [first, second, third] = readFileSync(file, 'utf8').split('\n');
    expect(first).toMatch(
      /^\d\d:\d\d:\d\d\.\d{3} WARN {2}http: Odd request user=@a:b\\n00:00:00 ERROR forged \\u001b\[31m size=3 \{GET-1\}$/,
    );
    expect(second).toMatch(/ ERROR Broken$/);
    expect(third).toBe('    Error: boom');
  });
});

describe('a Python logging file', () => {
  const file = join(folder, 'log.yaml');

  it('gives levels, file and format', () => {
    writeFileSync(
      file,
      `version: 1
formatters:
  precise: {format: '%(message)s'}
  structured: {class: synapse.logging.TerseJsonFormatter}
handlers:
  file: {class: logging.handlers.TimedRotatingFileHandler, formatter: structured, filename: ${folder}/homeserver.log, when: midnight}
  buffer: {class: synapse.logging.handlers.PeriodicallyFlushingMemoryHandler, target: file, capacity: 10}
  console: {class: logging.StreamHandler, formatter: precise}
loggers:
  synapse.storage.SQL: {level: INFO}
  rookery.rooms: {level: debug}
  other: {propagate: true}
root: {level: WARNING, handlers: [buffer]}
disable_existing_loggers: false
`,
    );
    expect(readLogConfig(file)).toEqual({
      level: 'warn',
      levels: { 'storage.SQL': 'info', rooms: 'debug' },
      file: join(folder, 'homeserver.log'),
      format: 'json',
      outputs: [
        {
          to: 'file',
          file: join(folder, 'homeserver.log'),
          format: 'json',
          rotation: { everyMs: 'midnight', keep: 0 },
        },
      ],
    });
    expect(loggerOptions(Config.fromObject({ log_config: file }))).toMatchObject({ level: 'warn', format: 'json' });
    expect(loggerOptions(Config.fromObject({ log_level: 'debug' }))).toEqual({ level: 'debug', format: 'auto' });
  });

  it.each([
    ['structured: true', `${file}:1: structured: removed in 1.54`],
    ['drains: {a: {}}', `${file}:1: drains: removed in 1.54`],
    ['root:\n  level: LOUD', `${file}:2: root.level: expected one of`],
    ['root: [', `${file}:2: not valid YAML`],
    ['root: {handlers: [fiel]}', `${file}:1: root.handlers: there is no "fiel" among handlers`],
    [
      'loggers: {access: {handlers: [acess], propagate: false}}',
      `${file}:1: loggers.access.handlers: there is no "acess" among handlers`,
    ],
    [
      'handlers: {held: {class: MemoryHandler, target: fiel}}\nroot: {handlers: [held]}',
      `${file}:1: handlers.held.target: there is no "fiel" among handlers`,
    ],
    [
      'handlers: {out: {class: StreamHandler, formatter: precize}}\nroot: {handlers: [out]}',
      `${file}:1: handlers.out.formatter: there is no "precize" among formatters`,
    ],
  ])('refuses %p', (text, message) => {
    writeFileSync(file, `${text}\n`);
    expect(() => readLogConfig(file)).toThrow(SettingsError);
    expect(() => readLogConfig(file)).toThrow(message);
  });

  it('sends lines where its handlers say', async () => {
    const [all, access, errors] = ['all', 'access', 'errors'].map((name) => join(folder, `${name}.log`));
    const syslog = createSocket('udp4');
    const received: string[] = [];
    syslog.on('message', (message) => received.push(message.toString()));
    await new Promise<void>((resolve) => syslog.bind(0, '127.0.0.1', resolve));
    writeFileSync(
      file,
      `formatters: {precise: {format: '%(asctime)s - %(name)s - %(levelname)-7s - %(message)s'}, json: {class: synapse.logging.JsonFormatter}}
handlers:
  all: {class: logging.FileHandler, filename: ${all}, formatter: precise}
  access: {class: logging.handlers.RotatingFileHandler, filename: ${access}, maxBytes: 1000, backupCount: 2, formatter: json}
  errors: {class: logging.handlers.WatchedFileHandler, filename: ${errors}, level: ERROR, formatter: json}
  net: {class: logging.handlers.SysLogHandler, address: [127.0.0.1, ${syslog.address().port}], facility: daemon, formatter: precise}
loggers:
  synapse.access: {handlers: [access], propagate: false}
root: {level: INFO, handlers: [all, errors, net]}
`,
    );
    const logger = PinoLogger.create(loggerOptions(Config.fromObject({ log_config: file })));
    const http = logger.child('access').child('http');
    for (let n = 0; n < 50; n++) http.info('Answered', { n });
    logger.child('rooms').info('Fine');
    logger.child('rooms').error('Broken');
    const lines = (name: string): string[] => readFileSync(name, 'utf8').split('\n').filter(Boolean);
    await eventually(() => lines(all!).length === 2 && lines(errors!).length === 1 && received.length === 2);
    expect(lines(all!)[0]).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - rooms - INFO {4}- Fine$/);
    expect(parsed(lines(errors!))).toMatchObject([{ level: 'error', msg: 'Broken' }]);
    expect(received[0]).toMatch(/^<30>rookery: .* - rooms - INFO {4}- Fine$/);
    expect(received[1]).toMatch(/^<27>rookery: .*Broken$/);
    syslog.close();
    // The newest are kept, as many as were asked for, none larger than it may be.
    const kept = (): string[] => [`${access}.2`, `${access}.1`, access!].flatMap(lines);
    await eventually(() => kept().some((line) => line.includes('"n":49')));
    const numbers = parsed(kept()).map((line) => line['n'] as number);
    expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, i) => 50 - numbers.length + i));
    expect(existsSync(`${access}.3`)).toBe(false);
    for (const name of [access!, `${access}.1`]) expect(statSync(name).size).toBeLessThanOrEqual(1_000);
  });

  it.each([
    ['besides', '', 1],
    ['instead', ', propagate: false', 0],
  ])('takes what it says of the whole server for each line, %s', async (how, more, inAll) => {
    const [all, own] = ['all', 'own'].map((name) => join(folder, `${how}-${name}.log`));
    writeFileSync(
      file,
      `handlers:
  all: {class: logging.FileHandler, filename: ${all}}
  own: {class: logging.FileHandler, filename: ${own}}
loggers:
  synapse: {level: INFO, handlers: [own]${more}}
  synapse.storage.SQL: {level: WARNING}
  synapse.http: {level: NOTSET}
root: {level: ERROR, handlers: [all]}
`,
    );
    const logger = PinoLogger.create(loggerOptions(Config.fromObject({ log_config: file })));
    logger.child('storage').child('SQL').info('Much');
    logger.child('http').debug('More');
    logger.child('rooms').info('Fine');
    const lines = (name: string): unknown[] =>
      existsSync(name) ? parsed(readFileSync(name, 'utf8').split('\n').filter(Boolean)).map((line) => line['msg']) : [];
    await eventually(() => lines(own!).length > 0 && lines(all!).length === inAll);
    expect([lines(own!), lines(all!)]).toEqual([['Fine'], inAll === 0 ? [] : ['Fine']]);
  });

  it('puts files aside at midnight', async () => {
    const name = join(folder, 'daily.log');
    let now = new Date(2026, 0, 30, 12).getTime();
    const daily = new RotatingFile(name, { everyMs: 'midnight', keep: 2 }, () => now);
    for (const day of [30, 31, 32, 33, 34]) {
      now = new Date(2026, 0, day, 12).getTime();
      daily.write(`${day}\n`);
    }
    await daily.close();
    const there = readdirSync(folder).filter((one) => one.startsWith('daily.log'));
    expect(there).toEqual(['daily.log', 'daily.log.2026-02-01', 'daily.log.2026-02-02']);
    await eventually(() => readFileSync(`${name}.2026-02-02`, 'utf8') === '33\n');
    expect(readFileSync(name, 'utf8')).toBe('34\n');
  });

  it('goes on with the file of before where another cannot be opened, and tries again', async () => {
    const [place, away] = [join(folder, 'place'), join(folder, 'away')];
    let now = 0;
    const rotating = new RotatingFile(join(place, 'a.log'), { maxBytes: 10, keep: 2 }, () => now);
    rotating.write('eight 1\n');
    renameSync(place, away);
    writeFileSync(place, '');
    for (const line of ['eight 2\n', 'eight 3\n']) rotating.write(line);
    const read = (name: string): string => readFileSync(join(name), 'utf8');
    await eventually(() => read(join(away, 'a.log')) === 'eight 1\neight 2\neight 3\n');
    rmSync(place);
    renameSync(away, place);
    now += 1_000;
    rotating.write('eight 4\n');
    await rotating.close();
    expect(readdirSync(place)).toEqual(['a.log', 'a.log.1']);
    expect(read(join(place, 'a.log'))).toBe('eight 4\n');
  });

  it('begins another file where somebody has put one aside, or deleted it', async () => {
    const name = join(folder, 'watched.log');
    let now = 0;
    const watched = new WatchedFile(name, false, () => now);
    watched.write('1\n');
    await eventually(() => readFileSync(name, 'utf8') === '1\n');
    renameSync(name, `${name}.1`);
    // Once a second is enough.
    watched.write('2\n');
    now += 1_000;
    watched.write('3\n');
    await eventually(() => existsSync(name) && readFileSync(name, 'utf8') === '3\n');
    await eventually(() => readFileSync(`${name}.1`, 'utf8') === '1\n2\n');
    rmSync(name);
    now += 1_000;
    watched.write('4\n');
    await watched.close();
    expect(readFileSync(name, 'utf8')).toBe('4\n');
  });

  it.each([
    ['WatchedFileHandler', true],
    ['FileHandler', undefined],
  ])('knows by a handler whether its file is watched: %s', (kind, watched) => {
    writeFileSync(
      file,
      `handlers: {file: {class: logging.handlers.${kind}, filename: /tmp/a.log}}\nroot: {handlers: [file]}\n`,
    );
    expect(readLogConfig(file).outputs?.[0]?.watched).toBe(watched);
  });
});
