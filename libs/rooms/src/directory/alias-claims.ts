import { Injectable } from '@nestjs/common';

/** What application services know about aliases. */
export interface AliasClaimSource {
  /** Whether an application service other than `appserviceId` has the alias to itself. */
  isReserved(alias: string, appserviceId: string | undefined): boolean;
  /** Asks the services that are interested in an alias to make it; whether one did. */
  ask(alias: string): Promise<boolean>;
}

/** Where the application service lib attaches. Without it nothing is claimed. */
@Injectable()
export class AliasClaims {
  #source: AliasClaimSource | undefined;

  use(source: AliasClaimSource): void {
    this.#source = source;
  }

  isReserved(alias: string, appserviceId: string | undefined): boolean {
    return this.#source?.isReserved(alias, appserviceId) ?? false;
  }

  async ask(alias: string): Promise<boolean> {
    return (await this.#source?.ask(alias)) ?? false;
  }
}
