declare module 'ldapjs' {
  interface Request {
    readonly dn: { toString(): string };
    readonly credentials: string;
    readonly filter: { matches(attributes: object): boolean };
  }
  interface Response {
    send(entry: { readonly dn: string; readonly attributes: object }): void;
    end(): void;
  }
  type Handler = (request: Request, response: Response, next: (error?: Error) => void) => void;
  interface Server {
    bind(dn: string, handler: Handler): void;
    search(dn: string, handler: Handler): void;
    listen(port: number, host: string, ready: () => void): void;
    close(done: () => void): void;
    readonly url: string;
  }
  const ldap: {
    createServer(): Server;
    InvalidCredentialsError: new () => Error;
    OperationsError: new () => Error;
    UnwillingToPerformError: new () => Error;
  };
  export default ldap;
}
