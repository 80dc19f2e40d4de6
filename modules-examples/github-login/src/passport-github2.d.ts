declare module 'passport-github2' {
  /** Signs people in at GitHub. */
  export class Strategy {
    constructor(options: Readonly<Record<string, unknown>>, verify: (...args: unknown[]) => void);
    authenticate(request: unknown, options?: unknown): void;
  }
}
