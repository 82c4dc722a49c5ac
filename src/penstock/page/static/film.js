// A run as data: columns of what was observed, decisions, lives, leases. What a view shows at an instant is
// found here, whether the instant is past or present.

// What is added up here, beside the columns that are told.
const SUMS = new Set(["done", "late"]);
const THERE = new Set(["starting", "running", "retiring"]);
export const LEVELS = { kept: "within its SLO", near: "up to twice its SLO", late: "more than twice its SLO", unknown: "nothing measured" };
export const MARKS = { kept: "✓", near: "~", late: "✕", unknown: "?" };
export const HOURS_A_MONTH = 730;
const HEALTH_S = 60, FLOW_S = 30;
export const CONGESTED = 0.9;

export function upTo(times, t) {
  // The place of the last time at or before t; -1 where there is none.
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t + 1e-6) low = middle + 1; else high = middle;
  }
  return low - 1;
}

export class Film {
  constructor(told, number) {
    Object.assign(this, told);
    this.number = number;
    this.names = Object.keys(this.units);
    this.ticks = { at: [], hosts: [], up: [], bill: [] };
    this.seen = {};
    for (const name of this.names) this.seen[name] = null;
    this.actions = []; this.byId = new Map(); this.lives = []; this.leases = new Map(); this.paid = new Map();
    this.charges = []; this.notices = []; this.budgets = [];
    this.tick = 0;
    this.cursor = null;
    this.add(told.delta);
    // Of a long run only the last observations are told at first; `fill` brings the others.
    this.partial = told.delta.partial ?? false;
    delete this.delta;
  }

  get start() { return this.ticks.at.length ? this.ticks.at[0] : 0; }
  get newest() { return this.ticks.at.length ? this.ticks.at[this.ticks.at.length - 1] : 0; }
  // A run that is over has given back everything at its last tick: what is worth showing is what was before.
  get end() {
    if (this.live) return this.newest;
    const place = upTo(this.ticks.at, this.newest - 1e-3);
    return place < 0 ? this.newest : this.ticks.at[place];
  }
  get label() { return `${this.name} · ${[...new Set(Object.values(this.units).map((unit) => unit.policy))].join(", ")}`; }

  take(news) {
    this.status = news.status; this.live = news.live;
    if (news.result) this.result = news.result;
    this.add(news.delta);
  }

  add(delta) {
    const known = this.newest, first = this.tick === 0, fresh = (at) => first || at > known + 1e-6;
    if (delta.tick <= this.tick && !first) { this.changed(delta); return; }
    delta.ticks.at.forEach((at, i) => {
      if (!fresh(at)) return;
      for (const name of ["at", "hosts", "up", "bill"]) this.ticks[name].push(delta.ticks[name][i]);
    });
    for (const [unit, columns] of Object.entries(delta.observed)) if (unit in this.units) this.observe(unit, columns);
    for (const life of delta.lives) if (fresh(life[0])) this.lives.push(life);
    for (const charge of delta.charges) {
      if (!fresh(charge[0])) continue;
      this.charges.push(charge);
      const own = this.paid.get(charge[1]) ?? { at: [], units: [] };
      own.at.push(charge[0]); own.units.push((own.units.at(-1) ?? 0) + charge[2]);
      this.paid.set(charge[1], own);
    }
    for (const notice of delta.notices) if (fresh(notice[0])) this.notices.push(notice);
    for (const budget of delta.budgets) if (fresh(budget[0])) this.budgets.push(budget);
    this.changed(delta);
    this.tick = delta.tick;
  }

  observe(unit, columns, before = Infinity) {
    const own = (this.seen[unit] ??= Object.fromEntries([...Object.keys(columns), ...SUMS].map((name) => [name, []])));
    const last = own.at.length ? own.at[own.at.length - 1] : -Infinity, slo = this.units[unit].slo;
    // Where nothing is there yet the columns are taken as they are: a day has 50,000 rows.
    let first = 0, end = columns.at.length;
    while (first < end && columns.at[first] <= last) first++;
    while (end > first && columns.at[end - 1] >= before) end--;
    if (first >= end) return;
    const known = own.at.length;
    for (const name in columns) {
      if (SUMS.has(name)) continue;
      if (known === 0) { own[name] = columns[name].slice(first, end); continue; }
      const column = (own[name] ??= new Array(known).fill(null));
      for (let i = first; i < end; i++) column.push(columns[name][i]);
    }
    for (const name in own) if (!(name in columns) && !SUMS.has(name)) for (let i = first; i < end; i++) own[name].push(null);
    let done = own.done.at(-1) ?? 0, late = own.late.at(-1) ?? 0;
    for (let i = first; i < end; i++) {
      const records = columns.out[i] * columns.step[i];
      done += records; late += records * lateShare(columns.duration[i], columns.p95[i], columns.p99[i], slo);
      own.done.push(done); own.late.push(late);
    }
  }

  // All observations of a run of which only the last were told, and what came meanwhile.
  fill(observed) {
    const last = this.seen;
    this.seen = {};
    for (const name of this.names) {
      this.seen[name] = null;
      if (observed[name]) this.observe(name, observed[name], last[name]?.at[0] ?? Infinity);
      if (last[name]) this.observe(name, last[name]);
    }
    this.partial = false;
  }

  changed(delta) {
    for (const [id, at, kind, policy, unit, subject, reason, status, refused, host] of delta.actions) {
      const action = { id, at, kind, policy, unit, subject, reason, status, refused, host };
      if (this.byId.has(id)) Object.assign(this.byId.get(id), action);
      else { this.byId.set(id, action); this.actions.push(action); }
    }
    for (const [host, site, flavour, start, step, price, units, end, currency] of delta.leases) {
      this.leases.set(host, { host, site, flavour, start, step, price: +price, units, end, currency });
    }
  }

  // --- at an instant -----------------------------------------------------------------------------

  unitAt(name, t) {
    const unit = this.units[name], own = this.seen[name], life = this.cursor?.units.get(name);
    const found = { name, slo: unit.slo, in: 0, out: 0, waiting: 0, duration: null, cpu: null, instances: 0, running: 0,
      emitted: 0, flowIn: 0, flowOut: 0, health: null, begun: false, level: "unknown", ratio: null, state: life?.state ?? "", problem: life?.problem ?? null };
    const i = own ? upTo(own.at, t) : -1;
    if (i < 0) return found;
    for (const key of ["in", "out", "waiting", "cpu", "instances", "running", "emitted", "duration", "p95"]) found[key] = own[key][i];
    // Nothing was finished meanwhile: what was known last still tells more than nothing.
    for (let j = i; found.duration === null && j > i - 5 && j >= 0; j--) found.duration = own.duration[j];
    found.age = t - own.at[i];
    found.health = this.health(own, i);
    found.begun = this.begun(own, i);
    // Micro-batches come and go: what flows along an edge is a mean over some of them.
    found.flowIn = this.mean(own, "in", i); found.flowOut = this.mean(own, "emitted", i);
    found.flows = (column) => (own[column] ? this.mean(own, column, i) : null);
    if (found.duration !== null) {
      found.ratio = found.duration / unit.slo;
      found.level = found.ratio <= 1 ? "kept" : found.ratio <= 2 ? "near" : "late";
    } else if (!found.waiting && !found.in) found.level = "kept";
    if (found.state === "failed" || found.state === "down") found.level = "late";
    return found;
  }

  mean(own, column, i) {
    let records = 0, seconds = 0;
    for (let j = i; j >= 0 && own.at[j] > own.at[i] - FLOW_S; j--) {
      if (own[column][j] === null) continue;
      records += own[column][j] * own.step[j]; seconds += own.step[j];
    }
    return seconds > 0 ? records / seconds : column.includes(":") ? null : 0;
  }

  // Whether it has finished a record. Where only the last moments are there yet, it is taken to have.
  begun(own, i) { return this.partial || own.done[i] > 0; }

  // What a unit executed over what came to it in the last minute, as the loop counts it; null where nothing came,
  // and until it has finished its first record: what came waits for the first micro-batch.
  health(own, i) {
    if (!this.begun(own, i)) return null;
    let arrived = 0, done = 0;
    for (let j = i; j >= 0 && own.at[j] > own.at[i] - HEALTH_S; j--) { arrived += (own.in[j] ?? 0) * own.step[j]; done += (own.out[j] ?? 0) * own.step[j]; }
    return arrived > 0 ? Math.min(1, done / arrived) : null;
  }

  move(t) {
    // Where everything is at t. Going on from where one was is cheap, going back begins anew.
    if (this.cursor === null || t < this.cursor.t) this.cursor = { t: -Infinity, next: 0, hosts: new Map(), instances: new Map(), units: new Map() };
    const cursor = this.cursor;
    while (cursor.next < this.lives.length && this.lives[cursor.next][0] <= t + 1e-6) {
      const [at, what, name, state, over, more] = this.lives[cursor.next++];
      const kind = what === "host" ? cursor.hosts : what === "instance" ? cursor.instances : cursor.units;
      if (over) kind.delete(name); else kind.set(name, { ...more, state, since: at });
    }
    cursor.t = t;
    return cursor;
  }

  at(t) {
    const cursor = this.move(t), place = upTo(this.ticks.at, t);
    const units = this.names.map((name) => this.unitAt(name, t));
    const on = new Map(), instances = [];
    for (const [name, instance] of cursor.instances) {
      if (!instance.host || !THERE.has(instance.state)) continue;
      if (instance.state !== "retiring") instances.push({ name, unit: instance.unit, host: instance.host });
      const own = on.get(instance.host) ?? {};
      own[instance.unit] = (own[instance.unit] ?? 0) + 1;
      on.set(instance.host, own);
    }
    const hosts = [];
    let rate = 0, used = 0;
    for (const lease of this.leases.values()) {
      if (!lease.units) continue;
      const until = Math.min(t, lease.end ?? Infinity);
      if (until > lease.start) used += ((until - lease.start) / lease.step) * lease.price;
      if (lease.start > t + 1e-6 || (lease.end !== null && lease.end <= t + 1e-6)) continue;
      const paid = this.paid.get(lease.host), i = paid ? upTo(paid.at, t) : -1;
      const paidUntil = lease.start + (i < 0 ? 1 : paid.units[i]) * lease.step;
      const life = cursor.hosts.get(lease.host);
      rate += (lease.price * 3600) / lease.step;
      hosts.push({ name: lease.host, site: lease.site, flavour: lease.flavour, state: life?.state ?? "up", problem: life?.problem,
        units: on.get(lease.host) ?? {}, paidUntil, price: lease.price, every: lease.step, step: Math.max(lease.step, paidUntil - lease.start > lease.step * 1.5 ? lease.step : paidUntil - lease.start), start: lease.start });
    }
    for (const [name, life] of cursor.hosts) {
      if (!this.leases.has(name) && life.state !== "released") hosts.push({ name, site: life.site, flavour: life.flavour, state: life.state, units: on.get(name) ?? {}, paidUntil: null });
    }
    const elapsed = Math.max(1, t - this.start);
    return {
      t, units, hosts, instances, bill: place < 0 ? 0 : this.ticks.bill[place], rate,
      month: (used / elapsed) * 3600 * HOURS_A_MONTH,
      // The run itself counted every record; before its end the share is read off the durations of each tick.
      counted: !this.live && t >= this.end && this.result ? this.result.compliance.real_time : null, kept: this.partial ? null : this.keptUpTo(t),
    };
  }

  keptUpTo(t) {
    let done = 0, late = 0;
    for (const own of Object.values(this.seen)) {
      const i = own ? upTo(own.at, t) : -1;
      if (i >= 0) { done += own.done[i]; late += own.late[i]; }
    }
    return done ? 1 - late / done : null;
  }

  // What is wrong, worst first, and what is being done about it.
  troubles(state) {
    const found = [], recent = 2 * this.loop.provisioning_s + 1;
    for (const unit of state.units) {
      const told = this.live ? this.status?.units?.[unit.name] : null;
      const problem = told?.problem ?? unit.problem;
      if (unit.state === "failed" || unit.state === "down") {
        found.push({ rank: 1e6, level: "late", unit: unit.name, what: `${unit.name} is ${unit.state}${problem ? `: ${problem}` : ""}`, unit_: unit });
      } else if (told && told.silent > 20) {
        found.push({ rank: 1e5 + told.silent, level: "late", unit: unit.name, what: `nothing was heard of ${unit.name} for ${Math.round(told.silent)} s` });
      } else if (unit.level === "near" || unit.level === "late") {
        found.push({ rank: unit.ratio * Math.log2(2 + unit.in), level: unit.level, unit: unit.name, ratio: unit.ratio, waiting: unit.waiting, unit_: unit });
      }
    }
    for (const host of state.hosts) if (host.state === "failed") found.push({ rank: 5e4, level: "late", what: `host ${host.name} failed${host.problem ? `: ${host.problem}` : ""}` });
    found.sort((a, b) => b.rank - a.rank);
    for (const trouble of found.slice(0, 3)) trouble.doing = this.doing(trouble, state.t, recent);
    return found;
  }

  doing(trouble, t, recent) {
    const unit = trouble.unit_;
    if (unit && unit.running < unit.instances) return `${unit.instances - unit.running} more ${unit.instances - unit.running > 1 ? "instances start" : "instance starts"}`;
    for (let i = this.actions.length - 1; i >= 0; i--) {
      const action = this.actions[i];
      if (action.at > t + 1e-6) continue;
      if (action.at < t - recent) break;
      if (trouble.unit && action.unit !== trouble.unit) continue;
      if (action.status === "refused") return `a guard refused to ${verb(action)}: ${action.refused}`;
      return `${verb(action)} ${action.status === "enacted" ? "done" : action.status}`;
    }
    if (unit && unit.instances >= this.units[unit.name].most) return `it has all ${unit.instances} instances it may have`;
    const why = this.live && trouble.unit ? this.status?.units?.[trouble.unit]?.why : "";
    return why || "nothing is changed";
  }
}

// The share of records that took longer than the SLO, read off the durations that are known.
export function lateShare(mean, p95, p99, slo) {
  if (mean === null) return 0;
  const known = [[0, 0], [mean, 0.5]];
  if (p95 !== null && p95 > known.at(-1)[0]) known.push([p95, 0.95]);
  if (p99 !== null && p99 > known.at(-1)[0]) known.push([p99, 0.99]);
  known.push([2 * known.at(-1)[0] + 1e-9, 1]);
  for (let i = 1; i < known.length; i++) {
    if (slo <= known[i][0]) {
      const [x0, y0] = known[i - 1], [x1, y1] = known[i];
      return 1 - (y0 + ((y1 - y0) * (slo - x0)) / (x1 - x0 || 1));
    }
  }
  return 0;
}

const VERBS = { LeaseHost: "lease", ProlongLease: "keep", ReleaseHost: "give back", StartInstance: "start", StopInstance: "stop", MigrateInstance: "move" };
export function verb(action) {
  return `${VERBS[action.kind] ?? action.kind} ${action.subject}${action.host && action.kind !== "LeaseHost" && action.host !== action.subject ? ` on ${action.host}` : ""}`;
}
export const KINDS = Object.keys(VERBS);
export const kindWord = (kind) => VERBS[kind] ?? kind;

// Rates along the edges over half a minute: [rate, known]. A unit with several inputs, or several ways out, counts each
// where the ground it runs on can. Where it cannot, an edge is known if it is the only one in or out; what is left
// is shared among the others by what their sources are said to send, else evenly.
export function edgeRates(film, state) {
  const unit = new Map(state.units.map((one) => [one.name, one])), into = new Map(), outOf = new Map();
  film.graph.edges.forEach(([from, to]) => {
    (into.get(to) ?? into.set(to, []).get(to)).push(from);
    (outOf.get(from) ?? outOf.set(from, []).get(from)).push(to);
  });
  const counted = (one, kind, names) => {
    const rates = names.map((name) => one?.flows?.(`${kind}:${name}`) ?? null);
    return rates.length && !rates.includes(null) ? rates.reduce((sum, rate) => sum + rate, 0) : null;
  };
  const known = film.graph.edges.map(([from, to], i) => {
    const carried = film.graph.carried?.[i] ?? [], measured = counted(unit.get(to), "from", carried) ?? counted(unit.get(from), "by", carried);
    if (measured !== null) return measured;
    if (unit.has(to) && into.get(to).length === 1) return unit.get(to).flowIn;
    return unit.has(from) && outOf.get(from).length === 1 ? unit.get(from).flowOut : null;
  });
  return film.graph.edges.map(([from, to], i) => {
    if (known[i] !== null) return [known[i], true];
    const way = unit.has(to) ? to : unit.has(from) ? from : null;
    if (way === null) return [null, false];
    // The other edges of the same side: what is left of the whole is theirs.
    const side = film.graph.edges.map((edge, k) => [edge, k]).filter(([edge]) => edge[way === to ? 1 : 0] === way);
    const weight = ([edge]) => (way === to ? film.loads?.[edge[0]] ?? 1 : 1), open = side.filter(([, k]) => known[k] === null);
    const whole = way === to ? unit.get(to).flowIn : unit.get(from).flowOut;
    const left = Math.max(0, whole - side.reduce((sum, [, k]) => sum + (known[k] ?? 0), 0));
    return [(left * weight([[from, to], i])) / open.reduce((sum, one) => sum + weight(one), 0), false];
  });
}
