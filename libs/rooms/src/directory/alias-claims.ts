import { Injectable } from '@nestjs/common';
import { RoomPorts } from '../ports.js';

/** Aliases that belong to application services. */
@Injectable()
export class AliasClaims {
  constructor(private readonly ports: RoomPorts) {}

  isReserved(alias: string, appserviceId: string | undefined): boolean {
    return this.ports.aliasClaims.given?.isReserved(alias, appserviceId) ?? false;
  }

  async ask(alias: string): Promise<boolean> {
    return (await this.ports.aliasClaims.given?.ask(alias)) ?? false;
  }
}
