import { Injectable } from '@nestjs/common';
import { Port } from '@rookery/platform';

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
  readonly port = new Port<AliasClaimSource>('alias_claims', 'required');

  isReserved(alias: string, appserviceId: string | undefined): boolean {
    return this.port.given?.isReserved(alias, appserviceId) ?? false;
  }

  async ask(alias: string): Promise<boolean> {
    return (await this.port.given?.ask(alias)) ?? false;
  }
}
