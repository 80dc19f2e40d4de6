import type pg from 'pg';
import { DatabaseError } from '../errors.js';
import type { PostgresOptions } from '../options.js';
import { ColumnTypes } from '../postgres/column-types.js';
import { copyIn, copyOut } from '../postgres/copy-rows.js';
import { connectAlone } from '../postgres/open-postgres.js';
import { PostgresStatements } from '../postgres/postgres-statements.js';
import { StatementNames } from '../postgres/statement-names.js';
import { Transaction } from '../transaction.js';
import type { DatabaseImage, ImagePart, LoadOptions } from './image.js';
import { notEmpty } from './not-empty.js';
import { isEmptySchema, readSchemaShape, type SchemaShape, sizeOfSchema } from './postgres-schema.query.js';
import { rowPieces } from './row-pieces.js';

const schemaPart = 'schema';
const commitLimitMs = 600_000;

// Rows in the order in which they lie, from the first: else a second image would begin somewhere else.
const sessionSettings = `
  SET statement_timeout = 0;
  SET lock_timeout = 0;
  SET idle_in_transaction_session_timeout = 0;
  SET synchronize_seqscans = off;
  SET extra_float_digits = 3;
  SET DateStyle = 'ISO, YMD';
  SET IntervalStyle = 'postgres';
  SET bytea_output = 'hex';
  SET client_encoding = 'UTF8'`;

/** Takes everything as of this moment, while others go on reading and writing. @throws DatabaseError */
export async function takePostgresImage(options: PostgresOptions): Promise<DatabaseImage> {
  const client = await connectAlone(options);
  const close = async (): Promise<void> => {
    await client.end().catch(() => {});
  };
  try {
    await client.query(sessionSettings);
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const shape = await readSchemaShape(client);
    const sizeBytes = await sizeOfSchema(client);
    return { kind: 'postgres', sizeBytes, parts: () => partsOf(client, shape), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function* partsOf(client: pg.Client, shape: SchemaShape): AsyncGenerator<ImagePart> {
  yield { name: schemaPart, pieces: oneOf(Buffer.from(JSON.stringify(shape))) };
  for (const { name, columns } of shape.tables) {
    yield {
      name,
      pieces: rowPieces(copyOut(client, `COPY ${quoted(name)} (${columns.join(', ')}) TO STDOUT`)),
    };
  }
}

async function* oneOf(piece: Uint8Array): AsyncGenerator<Uint8Array> {
  yield piece;
}

/**
 * Puts an image into a database that has nothing in it, in one transaction: it is there as a whole or not at all.
 * @throws DatabaseError when there is something in the database
 */
export async function loadPostgresImage(
  options: PostgresOptions,
  parts: AsyncIterable<ImagePart>,
  { finish, onProgress }: LoadOptions,
): Promise<void> {
  const client = await connectAlone(options);
  try {
    await client.query(sessionSettings);
    await client.query('BEGIN');
    if (!(await isEmptySchema(client))) throw notEmpty();
    const tables = new Map<string, string>();
    let shape: SchemaShape | undefined;
    for await (const { name, pieces } of parts) {
      const counted = counting(pieces, (bytes) => onProgress?.(name, bytes));
      if (shape === undefined) {
        shape = JSON.parse((await whole(counted)).toString()) as SchemaShape;
        for (const sql of [...shape.sequences, ...shape.tables.map(({ create }) => create)]) await client.query(sql);
        for (const table of shape.tables) tables.set(table.name, table.columns.join(', '));
        continue;
      }
      const columns = tables.get(name);
      if (columns === undefined)
        throw new DatabaseError(`The backup has rows of ${name}, but does not say what that is`);
      await copyIn(client, `COPY ${quoted(name)} (${columns}) FROM STDIN`, counted);
    }
    if (shape === undefined) throw new DatabaseError('The backup holds no database');
    for (const sql of [...shape.after, ...shape.positions]) await client.query(sql);
    const statements = new PostgresStatements(client, new StatementNames(), new ColumnTypes(), []);
    await finish?.(new Transaction(statements));
    await statements.commit(commitLimitMs);
    await client.query('COMMIT');
    await client.query('ANALYZE');
  } finally {
    await client.end().catch(() => {});
  }
}

/** Whether a database has nothing in it. */
export async function isEmptyPostgres(options: PostgresOptions): Promise<boolean> {
  const client = await connectAlone(options);
  try {
    return await isEmptySchema(client);
  } finally {
    await client.end().catch(() => {});
  }
}

async function* counting(
  pieces: AsyncIterable<Uint8Array>,
  onBytes: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  for await (const piece of pieces) {
    yield piece;
    onBytes(piece.length);
  }
}

async function whole(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;
