import pg from 'pg';
import { type WireStatement, writeStatements } from './wire-writer.js';

/** What the driver's connections have besides what its types say. */
interface DriverConnection {
  readonly stream: { readonly writable: boolean; write(bytes: Buffer): boolean };
  /** Texts of statements that the server keeps, and of those that it was asked to keep, by name. */
  readonly parsedStatements: Record<string, string>;
  readonly submittedNamedStatements: Record<string, string>;
}

/** The driver's own statement, as far as it is used here; its types describe another one. */
const DriverQuery = pg.Query as unknown as new (text: string) => object;

/** A statement with the name under which the server keeps it, if it does. */
export interface NamedStatement {
  readonly name: string | undefined;
  readonly text: string;
  readonly values: WireStatement['values'];
}

/**
 * Statements of which no rows are read, as one to the driver: one message there, one answer back. The driver sends each with
 * an answer of its own, for which both ends wake up.
 */
export class StatementBatch extends DriverQuery {
  /** The driver gives up after this time, if it is set. */
  query_timeout: number | undefined;
  /** What the server says it did last: `INSERT 0 1`, `COMMIT`. */
  command: string | undefined;
  readonly #parsing: NamedStatement[] = [];
  #failed = false;

  constructor(
    private readonly statements: readonly NamedStatement[],
    /** Called once; the driver puts another in its place where it watches the time. */
    public callback: (error: Error | null) => void,
  ) {
    super('');
  }

  /** It failed before the server is known to keep all the statements that it was to keep. */
  get leavesNamesUnclear(): boolean {
    return this.#failed && this.#parsing.length > 0;
  }

  submit(connection: DriverConnection): null {
    const wire = this.statements.map((statement): WireStatement => {
      const { name, text, values } = statement;
      if (name === undefined) return { name: '', text, values };
      if (connection.parsedStatements[name] ?? connection.submittedNamedStatements[name]) {
        return { name, text: undefined, values };
      }
      connection.submittedNamedStatements[name] = text;
      this.#parsing.push(statement);
      return { name, text, values };
    });
    if (connection.stream.writable) connection.stream.write(writeStatements(wire));
    return null;
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    this.command = text;
  }

  handleRowDescription(): void {}

  handleDataRow(): void {}

  handleError(error: Error, connection: DriverConnection): void {
    this.#failed = true;
    for (const { name } of this.#parsing) delete connection.submittedNamedStatements[name!];
    this.callback(error);
  }

  handleReadyForQuery(connection: DriverConnection): void {
    for (const { name, text } of this.#parsing) {
      connection.parsedStatements[name!] = text;
      delete connection.submittedNamedStatements[name!];
    }
    this.callback(null);
  }
}
